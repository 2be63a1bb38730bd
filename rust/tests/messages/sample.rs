//! Random messages by the schema, and a second encoder for them that shares no code with krust's
//! own: it walks the parsed schema files and remembers where it wrote lengths and counts.

use super::schema::{Api, Field, Kind, Record, Struct, is_flexible};
use krust::ids::TopicId;
use krust::protocol::value::Value;
use std::borrow::Cow;
use std::path::Path;

/// All schemas.
pub fn apis() -> Vec<Api> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("rust/schema");
    super::schema::load(&dir).unwrap()
}

/// All schemas of records.
pub fn records() -> Vec<Record> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("rust/schema");
    super::schema::load_records(&dir).unwrap()
}

/// A xorshift generator: the seed alone decides what comes.
pub struct Random(u64);

impl Random {
    pub fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from((self.bits() >> 16) % limit as u64).unwrap()
    }

    /// Now small, now anything that `bytes` bytes hold.
    fn integer(&mut self, bytes: u32) -> i64 {
        let wide = self.bits() as i64 >> (64 - 8 * bytes);
        if self.below(2) == 0 { wide } else { wide % 10 }
    }

    fn blob(&mut self) -> Vec<u8> {
        (0..self.below(9)).map(|_| self.bits() as u8).collect()
    }

    fn scalar(&mut self, kind: &Kind, version: i16) -> Value {
        match kind {
            Kind::Bool => Value::Bool(self.below(2) == 1),
            Kind::Int8 => Value::Int(self.integer(1)),
            Kind::Int16 => Value::Int(self.integer(2)),
            Kind::Uint16 => Value::Int(self.integer(2) & 0xffff),
            Kind::Int32 => Value::Int(self.integer(4)),
            Kind::Int64 => Value::Int(self.integer(8)),
            Kind::Float64 => Value::Float(self.integer(4) as f64 / 8.0),
            Kind::Uuid => {
                let (high, low) = (self.bits(), self.bits());
                let id = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
                Value::Uuid(if self.below(4) == 0 { TopicId::ZERO } else { TopicId(id) })
            }
            Kind::String => {
                let alphabet = ['a', 'Z', '.', '-', 'ß', '語'];
                Value::Str((0..self.below(8)).map(|_| alphabet[self.below(6)]).collect())
            }
            Kind::Bytes | Kind::Records => Value::Bytes(self.blob()),
            Kind::Struct(inner) => self.message(inner, version),
        }
    }

    /// A value for each field that `version` has; tagged ones are at their default half the time.
    pub fn message(&mut self, one: &Struct, version: i16) -> Value {
        let mut map = Vec::new();
        for field in one.fields.iter().filter(|field| field.versions.contains(version)) {
            let at_default = field.tag.is_some() && self.below(2) == 0;
            let value = if at_default {
                default(field, version)
            } else if field.nullable_in(version) && self.below(3) == 0 {
                Value::Null
            } else if field.array {
                let count = self.below(4);
                Value::List((0..count).map(|_| self.scalar(&field.kind, version)).collect())
            } else {
                self.scalar(&field.kind, version)
            };
            map.push((Cow::Owned(field.name.clone()), value));
        }
        Value::Map(map)
    }
}

fn number(literal: &str) -> i64 {
    match literal.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).unwrap(),
        None => literal.parse().unwrap(),
    }
}

/// The value of a field without a given one.
pub fn default(field: &Field, version: i16) -> Value {
    let literal = field.default.as_deref();
    match &field.kind {
        _ if field.nullable.is_some() && literal.is_none() => Value::Null,
        _ if field.array => Value::List(Vec::new()),
        Kind::Bool => Value::Bool(literal == Some("true")),
        Kind::Float64 => Value::Float(literal.map_or(0.0, |literal| literal.parse().unwrap())),
        Kind::Uuid => Value::Uuid(TopicId::ZERO),
        Kind::String => Value::Str(literal.unwrap_or_default().to_owned()),
        Kind::Bytes => Value::Bytes(Vec::new()),
        Kind::Records => Value::Null,
        Kind::Struct(inner) => {
            let fields = inner.fields.iter().filter(|field| field.versions.contains(version));
            let values = fields.map(|f| (Cow::Owned(f.name.clone()), default(f, version)));
            Value::Map(values.collect())
        }
        _ => Value::Int(literal.map_or(0, number)),
    }
}

/// How a length or count is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An int16, -1 = null.
    Short,
    /// An int32, -1 = null.
    Long,
    /// An unsigned varint of length + 1, 0 = null.
    Compact,
    /// An unsigned varint: number or size of tagged fields.
    Plain,
}

/// A length or count inside a frame.
#[derive(Clone, Copy, Debug)]
pub struct LengthMark {
    pub at: usize,
    pub size: usize,
    pub form: Form,
}

/// A frame, and where its lengths are.
#[derive(Default)]
pub struct Frame {
    pub bytes: Vec<u8>,
    pub marks: Vec<LengthMark>,
    /// Whether every tag section ends with two fields that no schema knows.
    pub unknown_tags: bool,
}

pub fn varint(mut value: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

impl Frame {
    pub fn of(api: &Api, one: &Struct, (version, value): (i16, &Value)) -> Self {
        let mut frame = Self::default();
        frame.message(one, version, (is_flexible(api.flexible, version), value));
        frame
    }

    fn length(&mut self, form: Form, length: Option<usize>) {
        let at = self.bytes.len();
        let signed = length.map_or(-1, |length| i64::try_from(length).unwrap());
        match form {
            Form::Short => self.bytes.extend((signed as i16).to_be_bytes()),
            Form::Long => self.bytes.extend((signed as i32).to_be_bytes()),
            Form::Compact => self.bytes.extend(varint((signed + 1) as u32)),
            Form::Plain => self.bytes.extend(varint(signed as u32)),
        }
        self.marks.push(LengthMark { at, size: self.bytes.len() - at, form });
    }

    pub fn message(&mut self, one: &Struct, version: i16, (flexible, value): (bool, &Value)) {
        let fields: Vec<_> = one.fields.iter().filter(|f| f.versions.contains(version)).collect();
        for field in fields.iter().filter(|field| field.tag.is_none()) {
            let value = value.field(&field.name).unwrap();
            self.field(field, version, (flexible, value));
        }
        if !flexible {
            return;
        }
        let is_set = |f: &&&Field| f.tag.is_some() && set(f, version, value);
        let mut tagged: Vec<_> = fields.iter().filter(is_set).collect();
        tagged.sort_by_key(|field| field.tag);
        self.length(Form::Plain, Some(tagged.len() + 2 * usize::from(self.unknown_tags)));
        for field in tagged {
            let unknown_tags = self.unknown_tags;
            let mut inner = Self { unknown_tags, ..Self::default() };
            inner.field(field, version, (flexible, value.field(&field.name).unwrap()));
            self.bytes.extend(varint(field.tag.unwrap()));
            self.length(Form::Plain, Some(inner.bytes.len()));
            let start = self.bytes.len();
            self.marks.extend(inner.marks.iter().map(|m| LengthMark { at: start + m.at, ..*m }));
            self.bytes.extend(inner.bytes);
        }
        if self.unknown_tags {
            self.bytes.extend([varint(20_000), vec![0]].concat());
            self.bytes.extend([varint(20_001), vec![3, 1, 2, 3]].concat());
        }
    }

    fn field(&mut self, field: &Field, version: i16, (flexible, value): (bool, &Value)) {
        let form = match (flexible, &field.kind, field.array) {
            (true, ..) => Form::Compact,
            (false, Kind::String, false) => Form::Short,
            (false, ..) => Form::Long,
        };
        match (value, &field.kind) {
            (Value::Null, Kind::Struct(_)) if !field.array => self.bytes.push(0xff),
            (Value::Null, _) => self.length(form, None),
            (Value::List(elements), kind) => {
                self.length(form, Some(elements.len()));
                for element in elements {
                    self.scalar(kind, version, (flexible, element));
                }
            }
            (value, kind) => {
                if matches!(kind, Kind::Struct(_)) && field.nullable_in(version) {
                    self.bytes.push(1);
                }
                self.scalar(kind, version, (flexible, value));
            }
        }
    }

    fn scalar(&mut self, kind: &Kind, version: i16, (flexible, value): (bool, &Value)) {
        let long = if flexible { Form::Compact } else { Form::Long };
        match (kind, value) {
            (Kind::Bool, Value::Bool(is)) => self.bytes.push(u8::from(*is)),
            (Kind::Int8, Value::Int(wide)) => self.bytes.push(*wide as u8),
            (Kind::Int16 | Kind::Uint16, Value::Int(wide)) => {
                self.bytes.extend((*wide as u16).to_be_bytes());
            }
            (Kind::Int32, Value::Int(wide)) => self.bytes.extend((*wide as i32).to_be_bytes()),
            (Kind::Int64, Value::Int(wide)) => self.bytes.extend(wide.to_be_bytes()),
            (Kind::Float64, Value::Float(number)) => self.bytes.extend(number.to_be_bytes()),
            (Kind::Uuid, Value::Uuid(id)) => self.bytes.extend(id.0),
            (Kind::String, Value::Str(text)) => {
                let form = if flexible { Form::Compact } else { Form::Short };
                self.length(form, Some(text.len()));
                self.bytes.extend(text.as_bytes());
            }
            (Kind::Bytes | Kind::Records, Value::Bytes(bytes)) => {
                self.length(long, Some(bytes.len()));
                self.bytes.extend(bytes);
            }
            (Kind::Struct(inner), value) => self.message(inner, version, (flexible, value)),
            (kind, value) => panic!("{kind:?} cannot be {value:?}"),
        }
    }
}

/// Whether a tagged field differs from its default. A struct's default may have more fields than
/// the version; both sides here have only the version's.
fn set(field: &Field, version: i16, message: &Value) -> bool {
    message.field(&field.name) != Some(&default(field, version))
}
