//! The subject of a certificate as text: RFC 2253, as Java's `X500Principal.getName()` writes it.
//!
//! Format: the RDNs from the last to the first, divided by commas; the attributes of one RDN by
//! plus signs, in their order. RFC 2253 names nine types of attributes (`CN=alice`); others are
//! their OID, and their value is `#` and its DER in hexadecimal. So is a value that is no string.
//! Like Java, every string is read as UTF-8 (a BMPString too), and bytes that are no UTF-8 become
//! U+FFFD. So only an authority that signs such bytes can give two subjects one name.
//! Limits: a name has at most 32,767 bytes, because no message could carry a longer one.
//! Not promised: names that are not in DER, and OIDs with a number over 128 bits; Java reads some.

use der::{Length, Reader, SliceReader};
use rustls::pki_types::CertificateDer;
use thiserror::Error;
use webpki::EndEntityCert;

/// The longest name, in bytes.
const NAME_MAX: usize = 0x7fff;

/// The types of attributes that RFC 2253 names.
const KEYWORDS: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
];

/// The tags of OIDs, sequences and sets, and the bits that are set before a longer tag.
const OID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const LONG_TAG: u8 = 0x1f;

/// The tags of strings: UTF8String, PrintableString, TeletexString, IA5String, GeneralString,
/// BMPString. The others are no strings for Java.
const STRINGS: [u8; 6] = [0x0c, 0x13, 0x14, 0x16, 0x1b, 0x1e];

/// Why a subject has no text.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SubjectError {
    /// The certificate, or the name in it, is not in DER.
    #[error("its subject cannot be read")]
    Encoding,
    /// The name is too long.
    #[error("its subject has more than {NAME_MAX} bytes")]
    Length,
}

impl From<der::Error> for SubjectError {
    fn from(_: der::Error) -> Self {
        Self::Encoding
    }
}

/// The subject of a certificate; empty if it has none.
pub fn subject(certificate: &[u8]) -> Result<String, SubjectError> {
    let certificate = CertificateDer::from(certificate);
    let read = EndEntityCert::try_from(&certificate).map_err(|_| SubjectError::Encoding)?;
    name_text(read.subject())
}

/// The text of a name: the content of its SEQUENCE.
fn name_text(name: &[u8]) -> Result<String, SubjectError> {
    let mut names = Vec::new();
    let mut reader = SliceReader::new(name)?;
    while !reader.is_finished() {
        names.push(relative_name(content(&mut reader, SET)?)?);
    }
    names.reverse();
    let text = names.join(",");
    if text.len() > NAME_MAX { Err(SubjectError::Length) } else { Ok(text) }
}

/// The text of an RDN: the content of its SET.
fn relative_name(set: &[u8]) -> Result<String, SubjectError> {
    let mut attributes = Vec::new();
    let mut reader = SliceReader::new(set)?;
    while !reader.is_finished() {
        attributes.push(attribute(content(&mut reader, SEQUENCE)?)?);
    }
    Ok(attributes.join("+"))
}

/// The text of an attribute: the content of its SEQUENCE.
fn attribute(sequence: &[u8]) -> Result<String, SubjectError> {
    let mut reader = SliceReader::new(sequence)?;
    let kind = oid_text(content(&mut reader, OID)?)?;
    let encoded = sequence.get(usize::try_from(reader.position())?..).unwrap_or_default();
    let (tag, value) = element(&mut reader)?;
    reader.finish()?;
    let keyword = KEYWORDS.iter().find(|(oid, _)| *oid == kind).map(|(_, keyword)| *keyword);
    Ok(match keyword.filter(|_| STRINGS.contains(&tag)) {
        Some(keyword) => format!("{keyword}={}", escaped(&decoded(value))),
        None => format!("{}=#{}", keyword.unwrap_or(&kind), hexadecimal(encoded)),
    })
}

/// The content of the next element, which has this tag.
fn content<'n>(reader: &mut SliceReader<'n>, tag: u8) -> Result<&'n [u8], SubjectError> {
    match element(reader)? {
        (found, content) if found == tag => Ok(content),
        _ => Err(SubjectError::Encoding),
    }
}

/// The tag and the content of the next element. `der` knows fewer tags than there are.
fn element<'n>(reader: &mut SliceReader<'n>) -> Result<(u8, &'n [u8]), SubjectError> {
    let tag = reader.read_byte()?;
    if tag & LONG_TAG == LONG_TAG {
        return Err(SubjectError::Encoding);
    }
    let length: Length = reader.decode()?;
    Ok((tag, reader.read_slice(length)?))
}

/// `2.5.4.3`
fn oid_text(encoded: &[u8]) -> Result<String, SubjectError> {
    let mut numbers = Vec::new();
    let mut number: Option<u128> = None;
    for &byte in encoded {
        // A number has no leading zeros.
        if number.is_none() && byte == 0x80 {
            return Err(SubjectError::Encoding);
        }
        let higher = number.unwrap_or(0);
        if higher.leading_zeros() < 7 {
            return Err(SubjectError::Encoding);
        }
        let value = (higher << 7) | u128::from(byte & 0x7f);
        number = if byte & 0x80 == 0 { None } else { Some(value) };
        if number.is_none() {
            numbers.push(value);
        }
    }
    // The first two numbers are one: 40 times the first, and the second.
    let Some((&both, others)) = numbers.split_first().filter(|_| number.is_none()) else {
        return Err(SubjectError::Encoding);
    };
    let first = (both / 40).min(2);
    let begin = format!("{first}.{}", both - 40 * first);
    Ok(others.iter().fold(begin, |text, each| format!("{text}.{each}")))
}

/// The text of bytes in UTF-8, with U+FFFD for what is none: one for each longest beginning of a
/// character, and for half of a surrogate pair.
fn decoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut of_surrogate = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.valid().is_empty() {
            of_surrogate = 0;
        }
        of_surrogate = match (chunk.invalid(), of_surrogate) {
            ([], _) => 0,
            ([0xa0..=0xbf], 2) => 1,
            ([0x80..=0xbf], 1) => 0,
            ([first, ..], _) => {
                text.push(char::REPLACEMENT_CHARACTER);
                if *first == 0xed { 2 } else { 0 }
            }
        };
    }
    text
}

/// A string with the escapes that Java writes.
fn escaped(value: &str) -> String {
    let is_space = |each: char| matches!(each, ' ' | '\r');
    let inner = value.trim_matches(is_space);
    let lead = value.len() - value.trim_start_matches(is_space).len();
    let mut text = String::with_capacity(value.len());
    for (at, each) in value.char_indices() {
        match each {
            '\0' => text.push_str("\\00"),
            ' ' | '\r' if at < lead || at >= lead + inner.len() => text.extend(['\\', each]),
            ',' | '=' | '+' | '<' | '>' | '#' | ';' | '"' | '\\' => text.extend(['\\', each]),
            _ => text.push(each),
        }
    }
    text
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CN: &str = "\x55\x04\x03";
    const EMAIL: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01";

    fn encoded(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        let head = if length < 0x80 { vec![tag, length] } else { vec![tag, 0x81, length] };
        [&head, content].concat()
    }

    fn typed(oid: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        encoded(0x30, &[encoded(6, oid), encoded(tag, value)].concat())
    }

    fn common(tag: u8, value: &[u8]) -> String {
        name_text(&encoded(0x31, &typed(CN.as_bytes(), tag, value))).unwrap()
    }

    fn name(rdns: &[&[Vec<u8>]]) -> Vec<u8> {
        rdns.iter().flat_map(|rdn| encoded(0x31, &rdn.concat())).collect()
    }

    #[test]
    fn the_last_part_comes_first_and_attributes_of_one_part_keep_their_order() {
        let [o, cn, ou] = [b"\x55\x04\x0a", b"\x55\x04\x03", b"\x55\x04\x0b"];
        let parts = name(&[
            &[typed(b"\x55\x04\x06", 0x13, b"DE")],
            &[typed(o, 12, b"z"), typed(cn, 12, b"b"), typed(ou, 12, b"a")],
            &[],
        ]);
        assert_eq!(name_text(&parts).as_deref(), Ok(",O=z+CN=b+OU=a,C=DE"));
        assert_eq!(name_text(&[]).as_deref(), Ok(""));
    }

    #[test]
    fn strings_are_escaped_as_by_java() {
        for (value, text) in [
            ("a,b+c\"d\\e<f>g;h=i#j/k", "a\\,b\\+c\\\"d\\\\e\\<f\\>g\\;h\\=i\\#j/k"),
            ("#lead", "\\#lead"),
            ("  two sp ", "\\ \\ two sp\\ "),
            ("  ", "\\ \\ "),
            ("\r x \r\n", "\\\r\\ x \r\n"),
            ("a\0b", "a\\00b"),
            ("\tü\u{feff}\u{a0}", "\tü\u{feff}\u{a0}"),
            ("", ""),
        ] {
            assert_eq!(common(12, value.as_bytes()), format!("CN={text}"));
        }
    }

    #[test]
    fn other_values_are_hexadecimal_and_other_types_their_numbers() {
        assert_eq!(common(0x1c, b"\0\0\0a"), "CN=#1c0400000061");
        assert_eq!(common(0x30, b"\x0c\x01x"), "CN=#30030c0178");
        assert_eq!(common(0x2c, b"\x0c\x01x"), "CN=#2c030c0178");
        assert_eq!(common(0x8c, b"abc"), "CN=#8c03616263");
        let of = |oid, tag, value| name_text(&name(&[&[typed(oid, tag, value)]]));
        assert_eq!(of(EMAIL, 22, b"a@b").as_deref(), Ok("1.2.840.113549.1.9.1=#1603614062"));
        assert_eq!(of(b"\x88\x37\x01", 12, b"v").as_deref(), Ok("2.999.1=#0c0176"));
        let dc = b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19";
        assert_eq!(of(dc, 22, b"com").as_deref(), Ok("DC=com"));
        let uuid = [b"\x69\x83".as_slice(), &[0xff; 17], b"\x7f"].concat();
        let most = format!("2.25.{}=#0c0176", u128::MAX);
        assert_eq!(of(&uuid, 12, b"v").as_deref(), Ok(&*most));
    }

    #[test]
    fn bytes_that_are_no_utf_8_are_replaced_as_by_java() {
        assert_eq!(common(12, b"a\xff\xe2\x82b\xf0\x9f\x98"), "CN=a\u{fffd}\u{fffd}b\u{fffd}");
        assert_eq!(common(12, b"\xed\xa0\x80x\xc0\x80"), "CN=\u{fffd}x\u{fffd}\u{fffd}");
        assert_eq!(common(20, b"J\xfcrgen"), "CN=J\u{fffd}rgen");
        assert_eq!(common(30, b"\0a\0l"), "CN=\\00a\\00l");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for wrong in [
            typed(CN.as_bytes(), 12, b"x"),
            encoded(0x31, &encoded(0x31, b"\x06\x03\x55\x04\x03\x0c\x01x")),
            encoded(0x31, &encoded(0x30, b"\x06\x03\x55\x04\x03")),
            encoded(0x31, &encoded(0x30, b"\x06\x03\x55\x04\x03\x0c\x01x\x0c\x01y")),
            encoded(0x31, &typed(b"", 12, b"x")),
            encoded(0x31, &typed(b"\x55\x80\x03", 12, b"x")),
            encoded(0x31, &typed(b"\x55\x84", 12, b"x")),
            encoded(0x31, &typed(&[[0xff; 19].as_slice(), b"\x7f"].concat(), 12, b"x")),
        ] {
            assert_eq!(name_text(&wrong), Err(SubjectError::Encoding), "{wrong:?}");
        }
        let long = encoded(0x31, &typed(CN.as_bytes(), 12, &[b','; 100])).repeat(200);
        assert_eq!(name_text(&long), Err(SubjectError::Length));
    }

    fn certificate() -> Vec<u8> {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "krust, inc");
        params.distinguished_name.push(rcgen::DnType::CommonName, " jürgen\0");
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_subject_of_a_whole_certificate_is_read() {
        assert_eq!(subject(&certificate()).as_deref(), Ok("CN=\\ jürgen\\00,O=krust\\, inc"));
        assert_eq!(subject(b""), Err(SubjectError::Encoding));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (name_text(&bytes), subject(&bytes));
            let _ = (relative_name(&bytes), attribute(&bytes), oid_text(&bytes));
            prop_assert!(decoded(&bytes).len() <= 3 * bytes.len());
        }

        #[test]
        fn no_changed_name_panics(
            changes in prop::collection::vec((0_usize..60, any::<u8>()), 0..6),
        ) {
            let mut bytes = name(&[
                &[typed(EMAIL, 22, b"a@b.c"), typed(CN.as_bytes(), 12, b" a,\xed\xa0 ")],
                &[typed(CN.as_bytes(), 0x30, b"\x0c\x01x"), typed(b"\x88\x37", 30, b"\0a")],
            ]);
            for (at, byte) in changes {
                if let Some(old) = bytes.get_mut(at) {
                    *old = byte;
                }
            }
            if let Ok(text) = name_text(&bytes) {
                prop_assert!(text.len() <= NAME_MAX);
            }
        }

        #[test]
        fn no_changed_certificate_panics(at in 0_usize..300, byte: u8, end in 0_usize..400) {
            let mut bytes = certificate_once().to_vec();
            bytes[at] = byte;
            let _ = subject(&bytes);
            bytes.truncate(end);
            let _ = subject(&bytes);
        }
    }

    fn certificate_once() -> &'static [u8] {
        static MADE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        MADE.get_or_init(certificate)
    }
}
