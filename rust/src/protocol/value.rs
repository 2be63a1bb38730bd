//! A message as a plain value, for the policy, the request log and tests.
//!
//! Format: a struct is a [`Value::Map`] of Kafka's field names in snake case, in wire order; only
//!     fields of its version. Integers of every width are [`Value::Int`]. Records in a file (a
//!     hole) are an `Int`, their length. Reading a value: types and names must be right. A missing
//!     key becomes the schema's default. An unknown key is an error that names its path.
//! Not promised: speed. Produce and Fetch do not use it.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

use super::codec::RecordsField;
use crate::ids::TopicId;

/// A plain value: nulls, numbers, strings, bytes, and lists and maps of values.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// Null.
    #[default]
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer of any width.
    Int(i64),
    /// A float64.
    Float(f64),
    /// A string.
    Str(String),
    /// Bytes or records.
    Bytes(Vec<u8>),
    /// A UUID.
    Uuid(TopicId),
    /// An array.
    List(Vec<Value>),
    /// A struct: field names and values.
    Map(Vec<(Cow<'static, str>, Value)>),
}

/// Why a value cannot be read as a message. The fault is with the code that made the value, because
/// a peer's bytes never cause this error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ValueError {
    /// The path to the field: `topics.0.name`.
    pub path: String,
    /// What is wrong with that field.
    pub problem: ValueProblem,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => self.problem.fmt(f),
            path => write!(f, "{path}: {}", self.problem),
        }
    }
}

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueProblem {
    /// Another type.
    #[error("expected {expected}, found {found}")]
    Type {
        /// The type the field has.
        expected: &'static str,
        /// The type the value has.
        found: &'static str,
    },
    /// An integer that does not fit the field.
    #[error("{0} does not fit")]
    Range(i64),
    /// The message has no such field in any version.
    #[error("no such field")]
    Unknown,
    /// No such API, or not in this version.
    #[error("API {key} has no version {version}")]
    Unsupported {
        /// The API's key.
        key: i16,
        /// The version asked for.
        version: i16,
    },
}

impl From<ValueProblem> for ValueError {
    fn from(problem: ValueProblem) -> Self {
        Self { path: String::new(), problem }
    }
}

impl ValueError {
    fn under(mut self, key: impl fmt::Display) -> Self {
        self.path = match self.path.as_str() {
            "" => key.to_string(),
            path => format!("{key}.{path}"),
        };
        self
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(text.to_owned())
    }
}

impl Value {
    /// The value of a struct's field.
    pub fn field(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Map(fields) => fields.iter().find(|(key, _)| key == name).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The text of a struct's field; empty if it has none.
    pub fn text(&self, name: &str) -> &str {
        match self.field(name) {
            Some(Self::Str(text)) => text,
            _ => "",
        }
    }

    /// The elements of a struct's list; none if it has no such list.
    pub fn items(&self, name: &str) -> &[Self] {
        match self.field(name) {
            Some(Self::List(items)) => items,
            _ => &[],
        }
    }

    /// The value of a struct's field, to change it.
    pub fn field_mut(&mut self, name: &str) -> Option<&mut Self> {
        let Self::Map(fields) = self else { return None };
        fields.iter_mut().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// The elements of a struct's list, to change them.
    pub fn items_mut(&mut self, name: &str) -> Option<&mut Vec<Self>> {
        match self.field_mut(name) {
            Some(Self::List(items)) => Some(items),
            _ => None,
        }
    }

    /// Feeds the whole value to a hasher; equal values give equal hashes.
    pub fn hash_into(&self, state: &mut impl Hasher) {
        std::mem::discriminant(self).hash(state);
        match self {
            Self::Null => {}
            Self::Bool(is) => is.hash(state),
            Self::Int(number) => number.hash(state),
            Self::Float(number) => number.to_bits().hash(state),
            Self::Str(text) => text.hash(state),
            Self::Bytes(bytes) => bytes.hash(state),
            Self::Uuid(id) => id.0.hash(state),
            Self::List(items) => {
                items.len().hash(state);
                items.iter().for_each(|item| item.hash_into(state));
            }
            Self::Map(fields) => {
                fields.len().hash(state);
                for (name, value) in fields {
                    name.hash(state);
                    value.hash_into(state);
                }
            }
        }
    }

    /// The name of its type, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Str(_) => "a string",
            Self::Bytes(_) => "bytes",
            Self::Uuid(_) => "a UUID",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }

    /// Passes each field of a struct to `read`, which returns whether it knows the name.
    pub fn each_field<'a>(
        &'a self,
        mut read: impl FnMut(&'a str, &'a Self) -> Result<bool, ValueError>,
    ) -> Result<(), ValueError> {
        let Self::Map(fields) = self else { return Err(self.mismatch("a map")) };
        for (key, value) in fields {
            match read(key, value) {
                Ok(true) => {}
                Ok(false) => return Err(ValueError::from(ValueProblem::Unknown).under(key)),
                Err(error) => return Err(error.under(key)),
            }
        }
        Ok(())
    }

    fn mismatch(&self, expected: &'static str) -> ValueError {
        ValueProblem::Type { expected, found: self.type_name() }.into()
    }
}

/// The most bytes that a part of a message takes as a [`Value`] and as objects of CPython 3.11 to
/// 3.14 together. Both exist while one is made from the other.
///
/// A value's field is 56 bytes, its element 32; an allocation is rounded up by 16. An int is 32
/// bytes, a str 49 (or 76, and up to 4 a character) and its text, a dict of up to 5 keys 200, of
/// up to 10 keys 288, a list 72 and 8 for each place, of which there may be an eighth too many.
pub mod cost {
    const SLOT: usize = size_of::<super::Value>() + 9;
    const FIELD: usize = size_of::<(std::borrow::Cow<'static, str>, super::Value)>();

    /// A number, a boolean, or (16 bytes) a UUID, which is text in Python.
    #[inline]
    pub const fn scalar(size: usize) -> usize {
        if size == 16 { 80 } else { 32 }
    }

    /// A string.
    #[inline]
    pub fn text(text: &[u8]) -> usize {
        match text.is_ascii() {
            true => 80 + 2 * text.len(),
            false => 112 + 5 * text.len(),
        }
    }

    /// Bytes.
    #[inline]
    pub fn bytes(bytes: &[u8]) -> usize {
        80 + 2 * bytes.len()
    }

    /// An array, without the memory that its elements point to.
    #[inline]
    pub fn list(count: usize) -> usize {
        144 + count.saturating_mul(SLOT)
    }

    /// A struct, without the memory that its fields point to.
    #[inline]
    pub fn map(fields: usize) -> usize {
        let dict = match fields {
            0..=5 => 208,
            6..=10 => 304,
            11..=21 => 512,
            _ => fields * 64,
        };
        dict + fields * FIELD
    }

    /// Tagged fields of `bytes` bytes in total. A missing field has its default.
    #[inline]
    pub fn tagged(bytes: usize) -> usize {
        144 + bytes.saturating_mul(64)
    }
}

/// A message or field that can become a value.
pub trait ToValue {
    /// The value, with the fields that `version` has.
    fn to_value(&self, version: i16) -> Value;
}

/// A message or field that can be read from a value.
pub trait FromValue<'a>: Sized {
    /// Reads the value.
    fn from_value(value: &'a Value) -> Result<Self, ValueError>;
}

macro_rules! integers {
    ($($kind:ident),*) => {$(
        impl ToValue for $kind {
            fn to_value(&self, _: i16) -> Value {
                Value::Int(i64::from(*self))
            }
        }

        impl FromValue<'_> for $kind {
            fn from_value(value: &Value) -> Result<Self, ValueError> {
                match value {
                    Value::Int(wide) => {
                        $kind::try_from(*wide).map_err(|_| ValueProblem::Range(*wide).into())
                    }
                    other => Err(other.mismatch("an integer")),
                }
            }
        }
    )*};
}

integers!(i8, i16, u16, i32, i64);

macro_rules! leaves {
    ($($kind:ty, $to:expr, $pattern:pat => $from:expr, $expected:literal);* $(;)?) => {$(
        impl<'a> ToValue for $kind {
            fn to_value(&self, _: i16) -> Value {
                #[allow(clippy::redundant_closure_call, reason = "one shape for every leaf")]
                ($to)(*self)
            }
        }

        impl<'a> FromValue<'a> for $kind {
            fn from_value(value: &'a Value) -> Result<Self, ValueError> {
                match value {
                    $pattern => Ok($from),
                    other => Err(other.mismatch($expected)),
                }
            }
        }
    )*};
}

leaves! {
    bool, Value::Bool, Value::Bool(is) => *is, "a boolean";
    f64, Value::Float, Value::Float(number) => *number, "a float";
    &'a str, |text: &str| Value::Str(text.to_owned()), Value::Str(text) => text, "a string";
    &'a [u8], |bytes: &[u8]| Value::Bytes(bytes.to_owned()), Value::Bytes(bytes) => bytes, "bytes";
}

impl ToValue for TopicId {
    fn to_value(&self, _: i16) -> Value {
        Value::Uuid(*self)
    }
}

/// Accepts text too, because Python has ids as text.
impl<'a> FromValue<'a> for TopicId {
    fn from_value(value: &'a Value) -> Result<Self, ValueError> {
        match value {
            Value::Uuid(id) => Ok(*id),
            Value::Str(text) => text.parse().map_err(|_| value.mismatch("a UUID")),
            other => Err(other.mismatch("a UUID")),
        }
    }
}

impl<T: ToValue> ToValue for Option<T> {
    fn to_value(&self, version: i16) -> Value {
        self.as_ref().map_or(Value::Null, |value| value.to_value(version))
    }
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Option<T> {
    fn from_value(value: &'a Value) -> Result<Self, ValueError> {
        match value {
            Value::Null => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}

impl<T: ToValue> ToValue for Vec<T> {
    fn to_value(&self, version: i16) -> Value {
        Value::List(self.iter().map(|element| element.to_value(version)).collect())
    }
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Vec<T> {
    fn from_value(value: &'a Value) -> Result<Self, ValueError> {
        let Value::List(elements) = value else { return Err(value.mismatch("a list")) };
        let read = |(index, element)| T::from_value(element).map_err(|e| e.under(index));
        elements.iter().enumerate().map(read).collect()
    }
}

impl ToValue for RecordsField<'_> {
    fn to_value(&self, _: i16) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            Self::Hole(len) => Value::Int(i64::try_from(*len).unwrap_or(i64::MAX)),
        }
    }
}

impl<'a> FromValue<'a> for RecordsField<'a> {
    fn from_value(value: &'a Value) -> Result<Self, ValueError> {
        match value {
            Value::Null => Ok(Self::Null),
            Value::Bytes(bytes) => Ok(Self::Bytes(bytes)),
            Value::Int(len) => {
                usize::try_from(*len).map(Self::Hole).map_err(|_| ValueProblem::Range(*len).into())
            }
            other => Err(other.mismatch("bytes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_path_to_what_is_wrong() {
        let bad = Value::List(vec![Value::Int(1), Value::Str("x".into())]);
        let error = Vec::<i32>::from_value(&bad).unwrap_err();
        assert_eq!(error.to_string(), "1: expected an integer, found a string");
        let wide = Value::List(vec![Value::Int(1 << 40)]);
        let error = Vec::<i32>::from_value(&wide).unwrap_err();
        assert_eq!(error.to_string(), "0: 1099511627776 does not fit");
    }

    #[test]
    fn refuses_a_field_that_no_version_has() {
        let map = Value::Map(vec![("nme".into(), Value::Null)]);
        let error = map.each_field(|key, _| Ok(key == "name")).unwrap_err();
        assert_eq!(error.to_string(), "nme: no such field");
    }
}
