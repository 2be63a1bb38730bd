//! The headers before every request and response.
//!
//! Format: request v0 is api_key int16, api_version int16, correlation_id int32; v1 adds client_id,
//!     a classic nullable string (in v2 too: a broker must read it before it knows whether the
//!     version is flexible); v2 adds tagged fields. Response v0 is the correlation_id; v1 adds
//!     tagged fields. Flexible versions of an API have request header v2 and response header v1.
//! Two exceptions: ApiVersions responses always have header v0, since the client that reads one may
//!     not know the version; ControlledShutdown v0 has request header v0.
//! Not promised: that krust serves the version. The header of any version of a known API can be
//!     read, so that an unknown version of ApiVersions is answered with an error.

use super::api;
use crate::wire::{DecodeError, Reader, Sink, Writer};

const API_VERSIONS: i16 = 18;
const CONTROLLED_SHUTDOWN: i16 = 7;

/// The header of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    /// The API.
    pub api_key: i16,
    /// Its version.
    pub api_version: i16,
    /// The response repeats it.
    pub correlation_id: i32,
    /// The name the client gives itself.
    pub client_id: Option<&'a str>,
}

impl<'a> RequestHeader<'a> {
    /// The header's own version for an API's version; `None` for an API krust has no schema of.
    pub fn version_for(api_key: i16, api_version: i16) -> Option<i16> {
        if (api_key, api_version) == (CONTROLLED_SHUTDOWN, 0) {
            return Some(0);
        }
        api(api_key).map(|spec| if api_version >= spec.flexible { 2 } else { 1 })
    }

    /// Reads a header; the version follows from its first two fields.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (api_key, api_version, correlation_id) = (r.i16()?, r.i16()?, r.i32()?);
        let unknown = DecodeError::Unsupported { key: api_key, version: api_version };
        let version = Self::version_for(api_key, api_version).ok_or(unknown)?;
        let client_id = if version >= 1 { r.nullable_string(false)? } else { None };
        if version >= 2 {
            r.skip_tagged()?;
        }
        Ok(Self { api_key, api_version, correlation_id, client_id })
    }

    /// Writes the header.
    pub fn encode(&self, w: &mut Writer) {
        let version = Self::version_for(self.api_key, self.api_version).unwrap_or(1);
        w.i16(self.api_key);
        w.i16(self.api_version);
        w.i32(self.correlation_id);
        if version >= 1 {
            w.string(false, self.client_id);
        }
        if version >= 2 {
            w.unsigned_varint(0);
        }
    }
}

/// The header of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The request's.
    pub correlation_id: i32,
}

impl ResponseHeader {
    /// The header's own version for an API's version.
    pub fn version_for(api_key: i16, api_version: i16) -> i16 {
        let flexible = api(api_key).is_some_and(|spec| api_version >= spec.flexible);
        i16::from(flexible && api_key != API_VERSIONS)
    }

    /// Reads the header before a response to `api_key` in `api_version`.
    pub fn decode(r: &mut Reader<'_>, api_key: i16, api_version: i16) -> Result<Self, DecodeError> {
        let correlation_id = r.i32()?;
        if Self::version_for(api_key, api_version) >= 1 {
            r.skip_tagged()?;
        }
        Ok(Self { correlation_id })
    }

    /// Writes the header before a response to `api_key` in `api_version`.
    pub fn encode(self, w: &mut Writer, api_key: i16, api_version: i16) {
        w.i32(self.correlation_id);
        if Self::version_for(api_key, api_version) >= 1 {
            w.unsigned_varint(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_versions_responses_have_header_0_in_flexible_versions_too() {
        assert_eq!(ResponseHeader::version_for(18, 4), 0);
        assert_eq!(ResponseHeader::version_for(3, 9), 1);
        assert_eq!(ResponseHeader::version_for(3, 8), 0);
    }

    #[test]
    fn controlled_shutdown_v0_has_no_client_id() {
        let frame = [0, 7, 0, 0, 0, 0, 0, 9];
        let header = RequestHeader::decode(&mut Reader::new(&frame)).unwrap();
        assert_eq!(header, RequestHeader { api_key: 7, correlation_id: 9, ..Default::default() });
    }

    #[test]
    fn the_client_id_stays_classic_in_header_2() {
        let header =
            RequestHeader { api_key: 18, api_version: 3, correlation_id: 1, client_id: Some("me") };
        let mut writer = Writer::new();
        header.encode(&mut writer);
        assert_eq!(writer.buf, [0, 18, 0, 3, 0, 0, 0, 1, 0, 2, b'm', b'e', 0]);
        assert_eq!(RequestHeader::decode(&mut Reader::new(&writer.buf)), Ok(header));
    }

    #[test]
    fn an_unknown_version_of_api_versions_still_has_a_readable_header() {
        let frame = [0, 18, 0, 99, 0, 0, 0, 5, 0xff, 0xff, 0];
        let header = RequestHeader::decode(&mut Reader::new(&frame)).unwrap();
        assert_eq!((header.api_version, header.correlation_id), (99, 5));
    }
}
