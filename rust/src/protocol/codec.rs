//! How each type of field is read and written, in classic and in flexible versions. The generated
//! messages use these traits; this file knows no message by name.
//!
//! Format: see `wire`. A nullable struct is a byte, -1 (null) or 1, before its fields.
//! Promise: `put` runs the same code over a `Counter` and over a `Writer`, so a size is always
//!     right.
//! Promise: `skip` allocates nothing. It returns what the message costs as a value (`value::cost`).
//! Not promised: that `skip` finds bad UTF-8, or a null in a version without it. It reads lengths
//!     only.

use super::value::cost;
use crate::ids::TopicId;
use crate::wire::{Counter, DecodeError, Reader, Sink};

/// The form in which a message is written: its version, and whether that version is flexible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The API's version.
    pub version: i16,
    /// Compact lengths and tagged fields.
    pub flexible: bool,
}

/// A value that messages can contain.
pub trait Coded<'a>: Sized {
    /// Reads one value.
    fn get(r: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError>;
    /// Writes the value.
    fn put<S: Sink>(&self, s: &mut S, form: Form);
    /// Passes over one value. Returns the most memory that it takes as a `Value`.
    fn skip(r: &mut Reader<'a>, form: Form) -> Result<usize, DecodeError>;
}

/// A value that arrays may hold.
pub trait Element<'a>: Coded<'a> {
    /// The fewest bytes it can take.
    fn min_size(form: Form) -> usize;
}

/// A value that may be null in some versions.
pub trait Nullable<'a>: Coded<'a> {
    /// Reads the value or null.
    fn get_nullable(r: &mut Reader<'a>, form: Form) -> Result<Option<Self>, DecodeError>;
    /// Writes the value or null.
    fn put_nullable<S: Sink>(value: Option<&Self>, s: &mut S, form: Form);
    /// Passes over the value or null, as [`Coded::skip`] does.
    fn skip_nullable(r: &mut Reader<'a>, form: Form) -> Result<usize, DecodeError>;
}

macro_rules! scalars {
    ($($kind:ty, $method:ident, $size:literal);*) => {$(
        impl Coded<'_> for $kind {
            #[inline]
            fn get(r: &mut Reader<'_>, _: Form) -> Result<Self, DecodeError> {
                r.$method()
            }

            #[inline]
            fn put<S: Sink>(&self, s: &mut S, _: Form) {
                s.$method(*self);
            }

            #[inline]
            fn skip(r: &mut Reader<'_>, _: Form) -> Result<usize, DecodeError> {
                r.take($size).map(|_| cost::scalar($size))
            }
        }

        impl Element<'_> for $kind {
            fn min_size(_: Form) -> usize {
                $size
            }
        }
    )*};
}

scalars!(bool, bool, 1; i8, i8, 1; i16, i16, 2; u16, u16, 2; i32, i32, 4; i64, i64, 8;
    f64, f64, 8; TopicId, uuid, 16);

macro_rules! views {
    ($($kind:ty, $read:ident, $read_nullable:ident, $write:ident, $length:ident,
      $cost:ident, $classic:literal);*)
    => {$(
        impl<'a> Coded<'a> for &'a $kind {
            #[inline]
            fn get(r: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
                r.$read(form.flexible)
            }

            #[inline]
            fn put<S: Sink>(&self, s: &mut S, form: Form) {
                s.$write(form.flexible, Some(self));
            }

            fn skip(r: &mut Reader<'a>, form: Form) -> Result<usize, DecodeError> {
                let len = r.$length(form.flexible)?.unwrap_or_default();
                r.take(len).map(cost::$cost)
            }
        }

        impl<'a> Element<'a> for &'a $kind {
            fn min_size(form: Form) -> usize {
                if form.flexible { 1 } else { $classic }
            }
        }

        impl<'a> Nullable<'a> for &'a $kind {
            #[inline]
            fn get_nullable(r: &mut Reader<'a>, form: Form) -> Result<Option<Self>, DecodeError> {
                r.$read_nullable(form.flexible)
            }

            #[inline]
            fn put_nullable<S: Sink>(value: Option<&Self>, s: &mut S, form: Form) {
                s.$write(form.flexible, value.copied());
            }

            fn skip_nullable(r: &mut Reader<'a>, form: Form) -> Result<usize, DecodeError> {
                Self::skip(r, form)
            }
        }
    )*};
}

views!(str, string, nullable_string, string, string_len, text, 2;
    [u8], bytes, nullable_bytes, bytes, long_len, bytes, 4);

impl<'a, T: Element<'a>> Coded<'a> for Vec<T> {
    fn get(r: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
        Self::get_nullable(r, form)?.ok_or(DecodeError::Null)
    }

    fn put<S: Sink>(&self, s: &mut S, form: Form) {
        s.long_len(form.flexible, Some(self.len()));
        for element in self {
            element.put(s, form);
        }
    }

    fn skip(r: &mut Reader<'a>, form: Form) -> Result<usize, DecodeError> {
        let Some(count) = r.count(form.flexible, T::min_size(form))? else { return Ok(0) };
        (0..count).try_fold(cost::list(count), |sum, _| Ok(sum + T::skip(r, form)?))
    }
}

impl<'a, T: Element<'a>> Nullable<'a> for Vec<T> {
    fn get_nullable(r: &mut Reader<'a>, form: Form) -> Result<Option<Self>, DecodeError> {
        let Some(count) = r.count(form.flexible, T::min_size(form))? else { return Ok(None) };
        let mut elements = r.allocate(count)?;
        for _ in 0..count {
            elements.push(T::get(r, form)?);
        }
        Ok(Some(elements))
    }

    fn put_nullable<S: Sink>(value: Option<&Self>, s: &mut S, form: Form) {
        match value {
            Some(elements) => elements.put(s, form),
            None => s.long_len(form.flexible, None),
        }
    }

    fn skip_nullable(r: &mut Reader<'a>, form: Form) -> Result<usize, DecodeError> {
        Self::skip(r, form)
    }
}

impl<'a, T: Nullable<'a>> Coded<'a> for Option<T> {
    #[inline]
    fn get(r: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
        T::get_nullable(r, form)
    }

    #[inline]
    fn put<S: Sink>(&self, s: &mut S, form: Form) {
        T::put_nullable(self.as_ref(), s, form);
    }

    fn skip(r: &mut Reader<'a>, form: Form) -> Result<usize, DecodeError> {
        T::skip_nullable(r, form)
    }
}

/// Reads the marker before a nullable struct: whether the struct follows.
pub fn is_present(r: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match r.i8()? {
        -1 => Ok(false),
        1 => Ok(true),
        marker => Err(DecodeError::Marker(marker)),
    }
}

/// Writes a value in a version that has no null there: null is written as the empty value.
pub fn put_required<'a, T, S>(value: &Option<T>, s: &mut S, form: Form)
where
    T: Coded<'a> + Default,
    S: Sink,
{
    match value {
        Some(value) => value.put(s, form),
        None => T::default().put(s, form),
    }
}

/// Writes a tagged field: tag, size, value.
pub fn put_tagged<'a, T, S>(s: &mut S, tag: u32, (value, form): (&T, Form))
where
    T: Coded<'a>,
    S: Sink,
{
    let mut size = Counter::default();
    value.put(&mut size, form);
    s.unsigned_varint(tag);
    s.unsigned_varlong(size.0 as u64);
    value.put(s, form);
}

/// Writes a tagged struct that may be null. A varint precedes it, 0 for null; outside of tagged
/// fields it is a byte, -1 for null.
pub fn put_optional<'a, T, S>(s: &mut S, tag: u32, (value, form): (&Option<T>, Form))
where
    T: Coded<'a>,
    S: Sink,
{
    let mut size = Counter(1);
    if let Some(value) = value {
        value.put(&mut size, form);
    }
    s.unsigned_varint(tag);
    s.unsigned_varlong(size.0 as u64);
    s.unsigned_varint(u32::from(value.is_some()));
    if let Some(value) = value {
        value.put(s, form);
    }
}

/// Reads a tagged struct that may be null, as [`put_optional`] writes it.
pub fn get_optional<'a, T: Coded<'a>>(
    r: &mut Reader<'a>,
    form: Form,
) -> Result<Option<T>, DecodeError> {
    match r.unsigned_varint()? {
        0 => Ok(None),
        _ => T::get(r, form).map(Some),
    }
}

/// The records field of a message: the record batches of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordsField<'a> {
    /// None; not the same as empty.
    #[default]
    Null,
    /// The batches themselves: a view into the frame that was decoded, or bytes to write.
    Bytes(&'a [u8]),
    /// The size of batches that go from a file to the socket. The encoder writes only their length
    /// and notes their position.
    Hole(usize),
}

impl<'a> RecordsField<'a> {
    /// The size of the batches in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Null => 0,
            Self::Bytes(bytes) => bytes.len(),
            Self::Hole(len) => *len,
        }
    }

    /// No batches: null or empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The batches, if they are here: `None` for null and for a hole.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Null | Self::Hole(_) => None,
        }
    }

    /// Reads records in a version that has no null there.
    pub fn get_required(r: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
        r.bytes(form.flexible).map(Self::Bytes)
    }

    /// Writes records in a version that has no null there: null is written as empty.
    pub fn put_required<S: Sink>(&self, s: &mut S, form: Form) {
        match self {
            Self::Null => s.bytes(form.flexible, Some(&[])),
            present => present.put(s, form),
        }
    }
}

impl<'a> Coded<'a> for RecordsField<'a> {
    #[inline]
    fn get(r: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
        Ok(r.nullable_bytes(form.flexible)?.map_or(Self::Null, Self::Bytes))
    }

    #[inline]
    fn put<S: Sink>(&self, s: &mut S, form: Form) {
        match self {
            Self::Null => s.bytes(form.flexible, None),
            Self::Bytes(bytes) => s.bytes(form.flexible, Some(bytes)),
            Self::Hole(len) => {
                s.long_len(form.flexible, Some(*len));
                s.hole(*len);
            }
        }
    }

    fn skip(r: &mut Reader<'a>, form: Form) -> Result<usize, DecodeError> {
        <&[u8]>::skip(r, form)
    }
}
