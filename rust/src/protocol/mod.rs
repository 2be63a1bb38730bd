//! Kafka's messages: every request and response that krust knows, at every version, generated from
//! `rust/schema/` (`rust/build/schema.rs` describes the language).
//!
//! Each API is a module (`produce::{ProduceRequest, ProduceResponse, ..}`). Its structs and fields
//! have Kafka's names. A decoded message borrows strings, bytes and records from the frame.
//! [`APIS`] lists the keys and versions of the schemas. [`decode_any`] and [`encode_any`] find a
//! message by its API's key, for callers that do not know its type.
//!
//! Invariants: a message that was decoded at a version encodes to bytes that decode to the same
//!     message. A tagged field that equals its default is not written. An unknown tagged field is
//!     skipped. `size(v)` = bytes that `encode(v)` writes + bytes of its holes.
//! Not promised: an error for a field that the version lacks. It is left out, and a null that the
//!     version lacks is written as empty. `broker::apis` says which versions the broker serves.

mod codec;
pub mod error;
pub mod header;
pub mod value;

use crate::wire::{DecodeError, Writer};
use value::{Value, ValueError, ValueProblem};

pub use codec::RecordsField;
pub use error::ErrorCode;

/// The keys, versions and codecs of one API, from its schema.
#[derive(Debug)]
pub struct ApiSchema {
    /// The key in request headers.
    pub key: i16,
    /// Kafka's name, `ListOffsets`.
    pub name: &'static str,
    /// The oldest version.
    pub first: i16,
    /// The newest version.
    pub last: i16,
    /// The first flexible version; `i16::MAX` if there is none.
    pub flexible: i16,
    /// The first version whose response has a throttle time, and the number of bytes before it;
    /// `None` if there is none, or if that number varies.
    pub throttle: Option<(i16, usize)>,
    /// The request's codec.
    pub request: AnyCodec,
    /// The response's codec.
    pub response: AnyCodec,
}

impl ApiSchema {
    /// Whether the schema has this version.
    pub fn has(&self, version: i16) -> bool {
        (self.first..=self.last).contains(&version)
    }

    fn codec(&self, direction: Direction) -> &AnyCodec {
        match direction {
            Direction::Request => &self.request,
            Direction::Response => &self.response,
        }
    }
}

/// Which of an API's two messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Client to broker.
    Request,
    /// Broker to client.
    Response,
}

/// A message's codec without its type. The version must be one of the API's.
#[derive(Debug)]
pub struct AnyCodec {
    /// The message's name, `ProduceRequest`.
    pub name: &'static str,
    /// Decodes a whole message: bytes after it are an error.
    pub decode: fn(&[u8], i16) -> Result<Value, DecodeError>,
    /// Appends the encoded message.
    pub encode: fn(&Value, i16, &mut Writer) -> Result<(), ValueError>,
    /// The encoded message's size.
    pub size: fn(&Value, i16) -> Result<usize, ValueError>,
    /// The size of the message at the start of the bytes.
    pub skip: fn(&[u8], i16) -> Result<usize, DecodeError>,
    /// The most memory that the message takes as a [`Value`] and as the interpreter's objects. This
    /// does not decode the message.
    pub value_cost: fn(&[u8], i16) -> Result<usize, DecodeError>,
}

/// The most memory that a message takes as a [`Value`] and as the interpreter's objects. The caller
/// leases that much before it calls [`decode_any`]. See [`value::cost`].
pub fn value_cost(
    key: i16,
    version: i16,
    direction: Direction,
    bytes: &[u8],
) -> Result<usize, DecodeError> {
    let spec = api(key).filter(|spec| spec.has(version));
    let spec = spec.ok_or(DecodeError::Unsupported { key, version })?;
    (spec.codec(direction).value_cost)(bytes, version)
}

/// The size of the message at the start of the bytes.
pub fn message_size(
    key: i16,
    version: i16,
    direction: Direction,
    bytes: &[u8],
) -> Result<usize, DecodeError> {
    let spec = api(key).filter(|spec| spec.has(version));
    let spec = spec.ok_or(DecodeError::Unsupported { key, version })?;
    (spec.codec(direction).skip)(bytes, version)
}

/// Decodes the message of an API known only by key. All of `bytes` must be the message.
pub fn decode_any(
    key: i16,
    version: i16,
    direction: Direction,
    bytes: &[u8],
) -> Result<Value, DecodeError> {
    let spec = api(key).filter(|spec| spec.has(version));
    let spec = spec.ok_or(DecodeError::Unsupported { key, version })?;
    (spec.codec(direction).decode)(bytes, version)
}

/// Encodes the message of an API known only by key.
pub fn encode_any(
    key: i16,
    version: i16,
    direction: Direction,
    value: &Value,
) -> Result<Writer, ValueError> {
    let spec = api(key).filter(|spec| spec.has(version));
    let spec = spec.ok_or(ValueProblem::Unsupported { key, version })?;
    let mut writer = Writer::new();
    (spec.codec(direction).encode)(value, version, &mut writer)?;
    Ok(writer)
}

/// The methods of a message that take a version.
macro_rules! message_methods {
    ($this:ty, $read:lifetime $(, $generic:lifetime)?) => {
        impl$(<$generic>)? $this {
            /// Reads the message from the front of `r`.
            pub fn decode(r: &mut Reader<$read>, version: i16) -> Result<Self, DecodeError> {
                Coded::get(r, form(version))
            }

            /// Appends the message.
            pub fn encode(&self, w: &mut Writer, version: i16) {
                self.put(w, form(version));
            }

            /// How many bytes the message takes on the wire, those of holes included.
            pub fn size(&self, version: i16) -> usize {
                let mut counter = Counter::default();
                self.put(&mut counter, form(version));
                counter.0
            }

            /// Passes over the message by its lengths. Returns the most memory that it takes as a
            /// [`Value`].
            pub fn skip(r: &mut Reader<$read>, version: i16) -> Result<usize, DecodeError> {
                <Self as Coded>::skip(r, form(version))
            }

            /// The message as a value, with the fields that `version` has.
            pub fn to_value(&self, version: i16) -> Value {
                ToValue::to_value(self, version)
            }

            /// The message of a value; a missing field is its default.
            pub fn from_value(value: &$read Value) -> Result<Self, ValueError> {
                FromValue::from_value(value)
            }
        }
    };
}

/// `Nullable` for a struct: a marker byte before its fields.
macro_rules! nullable_struct {
    ($this:ty) => {
        impl<'a> Nullable<'a> for $this {
            fn get_nullable(r: &mut Reader<'a>, form: Form) -> Result<Option<Self>, DecodeError> {
                if is_present(r)? { Self::get(r, form).map(Some) } else { Ok(None) }
            }

            fn put_nullable<S: Sink>(value: Option<&Self>, s: &mut S, form: Form) {
                s.i8(if value.is_some() { 1 } else { -1 });
                if let Some(value) = value {
                    value.put(s, form);
                }
            }

            fn skip_nullable(r: &mut Reader<'a>, form: Form) -> Result<usize, DecodeError> {
                if is_present(r)? { <Self as Coded>::skip(r, form) } else { Ok(0) }
            }
        }
    };
}

/// The methods of a record's key or value, whose bytes begin with their version.
macro_rules! record_methods {
    ($this:ty, $first:literal, $last:literal) => {
        impl<'a> $this {
            /// Reads all of `bytes`: the version, then the record. `None`: an unknown version.
            pub fn read(bytes: &'a [u8]) -> Result<Option<Self>, DecodeError> {
                let mut reader = Reader::new(bytes);
                let version = reader.i16()?;
                if !($first..=$last).contains(&version) {
                    return Ok(None);
                }
                let record = Self::decode(&mut reader, version)?;
                reader.finish()?;
                Ok(Some(record))
            }

            /// Appends the version, then the record.
            pub fn write(&self, version: i16, w: &mut Writer) {
                w.i16(version);
                self.encode(w, version);
            }
        }
    };
}

/// The [`AnyCodec`] of a message type.
macro_rules! any_codec {
    ($message:ident) => {
        AnyCodec {
            name: stringify!($message),
            decode: |bytes, version| {
                let mut reader = Reader::new(bytes);
                let message = $message::decode(&mut reader, version)?;
                reader.finish()?;
                Ok(message.to_value(version))
            },
            encode: |value, version, writer| {
                $message::from_value(value)?.encode(writer, version);
                Ok(())
            },
            size: |value, version| Ok($message::from_value(value)?.size(version)),
            skip: |bytes, version| {
                let mut reader = Reader::new(bytes);
                $message::skip(&mut reader, version)?;
                Ok(bytes.len() - reader.remaining())
            },
            value_cost: |bytes, version| $message::skip(&mut Reader::new(bytes), version),
        }
    };
}

/// What every generated module uses.
mod generated {
    pub(super) use super::codec::{
        Coded, Element, Form, Nullable, RecordsField, get_optional, is_present, put_optional,
        put_required, put_tagged,
    };
    pub(super) use super::value::{FromValue, ToValue, Value, ValueError, cost};
    pub(super) use super::{AnyCodec, ApiSchema};
    pub(super) use crate::ids::TopicId;
    pub(super) use crate::wire::{Counter, DecodeError, Reader, Sink, Writer};

    /// Adds a field to a value.
    pub(super) fn push_field(
        map: &mut Vec<(std::borrow::Cow<'static, str>, Value)>,
        name: &'static str,
        value: Value,
    ) {
        map.push((name.into(), value));
    }
}

#[allow(
    unused_imports,
    unused_variables,
    clippy::derivable_impls,
    clippy::match_single_binding,
    reason = "generated: all modules and structs have one shape, also where less would do"
)]
mod messages {
    use super::{AnyCodec, ApiSchema, generated};
    include!(concat!(env!("OUT_DIR"), "/protocol.rs"));
}

pub use messages::*;
