//! Converts batches of any Arrow producer to records for the [`Sender`].
//!
//! [`ColumnRoles`] say which column is the key, the value and so on. Keys and values are binary or
//! text of any kind: 32 and 64-bit offsets, views, fixed size, dictionaries. Partitions are
//! integers of any size, times are timestamps or integers (milliseconds), headers are lists or maps
//! of name and value. A null means: no key, no value, no headers, the partition by the key, the
//! time now.
//! Invariant: a record borrows from its own row; the sender makes the only copy.
//! Threads: one at a time.
//! Not promised: that a table is sent as a whole or not at all. Rows before a refused row are sent.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BinaryViewArray, FixedSizeBinaryArray,
    LargeBinaryArray, LargeStringArray, RecordBatch, StringArray, StringViewArray, StructArray,
};
use arrow_buffer::{ArrowNativeType, NullBuffer};
use arrow_schema::{DataType, TimeUnit};

use crate::client::sender::{AppendResult, Sender};
use crate::client::{Error, Result};
use crate::record::batch::NewRecord;

/// The columns of a table that hold the fields of a record.
#[derive(Clone, Debug, Default)]
pub struct ColumnRoles {
    key: Option<String>,
    value: Option<String>,
    headers: Option<String>,
    partition: Option<String>,
    topic: Option<String>,
    timestamp: Option<String>,
}

impl ColumnRoles {
    /// The roles of columns, from a map of role to column.
    pub fn of(columns: HashMap<String, String>) -> Result<Self> {
        let mut roles = Self::default();
        for (role, column) in columns {
            let place = match role.as_str() {
                "key" => &mut roles.key,
                "value" => &mut roles.value,
                "headers" => &mut roles.headers,
                "partition" => &mut roles.partition,
                "topic" => &mut roles.topic,
                "timestamp" => &mut roles.timestamp,
                _ => {
                    let roles = "key, value, headers, partition, topic, timestamp";
                    return Err(Error::Invalid(format!("{role:?} is none of {roles}")));
                }
            };
            *place = Some(column);
        }
        Ok(roles)
    }
}

/// One batch, with its columns by their roles.
pub struct ArrowRecords {
    count: usize,
    /// How many rows of the table came before this batch, for error messages.
    before: usize,
    key: Option<TextColumn>,
    value: Option<TextColumn>,
    headers: Option<HeaderColumns>,
    partition: Option<NumberColumn>,
    timestamp: Option<NumberColumn>,
    topic: TopicColumn,
}

/// The topic of the records.
enum TopicColumn {
    One(Arc<str>),
    Each(TextColumn),
}

impl ArrowRecords {
    /// Looks the columns up. `topic`, if given, is the topic of every record. `before` rows of the
    /// table came before this batch.
    pub fn of(
        batch: &RecordBatch,
        roles: &ColumnRoles,
        (topic, before): (Option<&str>, usize),
    ) -> Result<Self> {
        let texts = |name: &Option<String>| column(batch, name.as_ref(), TextColumn::of);
        let topic = match (topic, texts(&roles.topic)?) {
            (Some(topic), _) => TopicColumn::One(topic.into()),
            (None, Some(column)) => TopicColumn::Each(column),
            (None, None) => {
                let what = "say which topic, or which column names it";
                return Err(Error::Invalid(what.to_owned()));
            }
        };
        Ok(Self {
            count: batch.num_rows(),
            before,
            key: texts(&roles.key)?,
            value: texts(&roles.value)?,
            headers: column(batch, roles.headers.as_ref(), HeaderColumns::of)?,
            partition: column(batch, roles.partition.as_ref(), NumberColumn::integers)?,
            timestamp: column(batch, roles.timestamp.as_ref(), NumberColumn::times)?,
            topic,
        })
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends the records from row `from` on, at most `most`. Returns the first row that was not
    /// appended, because the sender must wait or `most` is reached. `now` is the time of records
    /// without one.
    pub fn append(&self, sender: &Sender, from: usize, (most, now): (usize, i64)) -> Result<usize> {
        let mut pairs = Vec::new();
        for row in from..self.count.min(from.saturating_add(most)) {
            let bad = |what: String| self.bad(row, &what);
            pairs.clear();
            if let Some(headers) = &self.headers {
                headers.read(row, &mut pairs).map_err(bad)?;
            }
            let timestamp = match self.timestamp.as_ref().and_then(|times| times.get(row)) {
                None => now,
                Some(time) if time >= -1 => time,
                Some(time) => return Err(bad(format!("{time} ms is before 1970"))),
            };
            let partition = match self.partition.as_ref().and_then(|numbers| numbers.get(row)) {
                None | Some(-1) => None,
                Some(number) => match i32::try_from(number) {
                    Ok(number) if number >= 0 => Some(number),
                    _ => return Err(bad(format!("{number} is no partition"))),
                },
            };
            let entry = NewRecord {
                timestamp,
                key: self.key.as_ref().and_then(|texts| texts.get(row)),
                value: self.value.as_ref().and_then(|texts| texts.get(row)),
                headers: &pairs,
            };
            let topic = self.topic(row)?;
            if sender.try_append(topic, partition, (&entry, false))? == AppendResult::Wait {
                return Ok(row);
            }
        }
        Ok(self.count.min(from.saturating_add(most)))
    }

    /// The topic of a row's record.
    pub fn topic(&self, row: usize) -> Result<&str> {
        match &self.topic {
            TopicColumn::One(topic) => Ok(topic),
            TopicColumn::Each(column) => column
                .get(row)
                .and_then(|name| std::str::from_utf8(name).ok())
                .ok_or_else(|| self.bad(row, "it names no topic")),
        }
    }

    fn bad(&self, row: usize, what: &str) -> Error {
        Error::Invalid(format!("row {}: {what}", self.before + row))
    }
}

/// The error of a column whose type does not fit: its type, and the types that would fit.
type ColumnTypeError = (DataType, &'static str);

fn column<T>(
    batch: &RecordBatch,
    name: Option<&String>,
    read: impl Fn(&ArrayRef) -> std::result::Result<T, ColumnTypeError>,
) -> Result<Option<T>> {
    let Some(name) = name else { return Ok(None) };
    let Some(array) = batch.column_by_name(name) else {
        let schema = batch.schema();
        let there: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let there = there.join(", ");
        return Err(Error::Invalid(format!("the table has no column {name:?}, but {there}")));
    };
    read(array).map(Some).map_err(|(found, wanted)| {
        Error::Invalid(format!("column {name:?} is {found}, where {wanted} is needed"))
    })
}

/// A column of bytes.
enum TextColumn {
    Null,
    Binary(BinaryArray),
    LargeBinary(LargeBinaryArray),
    BinaryView(BinaryViewArray),
    Fixed(FixedSizeBinaryArray),
    Utf8(StringArray),
    LargeUtf8(LargeStringArray),
    Utf8View(StringViewArray),
    Dictionary(Vec<usize>, Option<NullBuffer>, Box<TextColumn>),
}

impl TextColumn {
    fn of(array: &ArrayRef) -> std::result::Result<Self, ColumnTypeError> {
        Ok(match array.data_type() {
            DataType::Null => Self::Null,
            DataType::Binary => Self::Binary(array.as_binary().clone()),
            DataType::LargeBinary => Self::LargeBinary(array.as_binary().clone()),
            DataType::BinaryView => Self::BinaryView(array.as_binary_view().clone()),
            DataType::FixedSizeBinary(_) => Self::Fixed(array.as_fixed_size_binary().clone()),
            DataType::Utf8 => Self::Utf8(array.as_string().clone()),
            DataType::LargeUtf8 => Self::LargeUtf8(array.as_string().clone()),
            DataType::Utf8View => Self::Utf8View(array.as_string_view().clone()),
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                if dictionary.values().is_empty() {
                    return Ok(Self::Null);
                }
                let nulls = dictionary.keys().nulls().cloned();
                let values = Self::of(dictionary.values())?;
                Self::Dictionary(dictionary.normalized_keys(), nulls, Box::new(values))
            }
            other => return Err((other.clone(), "binary or text")),
        })
    }

    #[inline]
    fn get(&self, row: usize) -> Option<&[u8]> {
        fn one<A: Array>(array: &A, row: usize) -> bool {
            row < array.len() && array.is_valid(row)
        }
        match self {
            Self::Null => None,
            Self::Binary(array) => one(array, row).then(|| array.value(row)),
            Self::LargeBinary(array) => one(array, row).then(|| array.value(row)),
            Self::BinaryView(array) => one(array, row).then(|| array.value(row)),
            Self::Fixed(array) => one(array, row).then(|| array.value(row)),
            Self::Utf8(array) => one(array, row).then(|| array.value(row).as_bytes()),
            Self::LargeUtf8(array) => one(array, row).then(|| array.value(row).as_bytes()),
            Self::Utf8View(array) => one(array, row).then(|| array.value(row).as_bytes()),
            Self::Dictionary(keys, nulls, values) => {
                let valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                keys.get(row).filter(|_| valid).and_then(|key| values.get(*key))
            }
        }
    }
}

/// A column of whole numbers.
struct NumberColumn {
    values: Vec<i64>,
    nulls: Option<NullBuffer>,
}

impl NumberColumn {
    fn integers(array: &ArrayRef) -> std::result::Result<Self, ColumnTypeError> {
        Ok(match array.data_type() {
            DataType::Null => Self { values: Vec::new(), nulls: None },
            DataType::Int8 => Self::of::<Int8Type>(array, i64::from),
            DataType::Int16 => Self::of::<Int16Type>(array, i64::from),
            DataType::Int32 => Self::of::<Int32Type>(array, i64::from),
            DataType::Int64 => Self::of::<Int64Type>(array, |number| number),
            DataType::UInt8 => Self::of::<UInt8Type>(array, i64::from),
            DataType::UInt16 => Self::of::<UInt16Type>(array, i64::from),
            DataType::UInt32 => Self::of::<UInt32Type>(array, i64::from),
            DataType::UInt64 => {
                Self::of::<UInt64Type>(array, |number| i64::try_from(number).unwrap_or(i64::MAX))
            }
            other => return Err((other.clone(), "a whole number")),
        })
    }

    /// Reads times as milliseconds since 1970.
    fn times(array: &ArrayRef) -> std::result::Result<Self, ColumnTypeError> {
        let DataType::Timestamp(unit, _) = array.data_type() else {
            let wanted = "a timestamp, or milliseconds as a whole number,";
            return Self::integers(array).map_err(|(found, _)| (found, wanted));
        };
        Ok(match unit {
            TimeUnit::Second => {
                Self::of::<TimestampSecondType>(array, |time| time.saturating_mul(1000))
            }
            TimeUnit::Millisecond => Self::of::<TimestampMillisecondType>(array, |time| time),
            TimeUnit::Microsecond => {
                Self::of::<TimestampMicrosecondType>(array, |time| time.div_euclid(1000))
            }
            TimeUnit::Nanosecond => {
                Self::of::<TimestampNanosecondType>(array, |time| time.div_euclid(1_000_000))
            }
        })
    }

    fn of<T: ArrowPrimitiveType>(array: &ArrayRef, number: impl Fn(T::Native) -> i64) -> Self {
        let array = array.as_primitive::<T>();
        let values = array.values().iter().map(|value| number(*value)).collect();
        Self { values, nulls: array.nulls().cloned() }
    }

    #[inline]
    fn get(&self, row: usize) -> Option<i64> {
        let valid = self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        self.values.get(row).copied().filter(|_| valid)
    }
}

/// A column of lists of names and values.
struct HeaderColumns {
    /// The position where the list of each row begins, and the end of the last one.
    offsets: Vec<usize>,
    nulls: Option<NullBuffer>,
    names: TextColumn,
    values: TextColumn,
}

impl HeaderColumns {
    fn of(array: &ArrayRef) -> std::result::Result<Self, ColumnTypeError> {
        let wanted = "a list of {key: text, value: binary}";
        let unfit = || (array.data_type().clone(), wanted);
        let (offsets, pairs) = match array.data_type() {
            DataType::Null => {
                let (names, values) = (TextColumn::Null, TextColumn::Null);
                return Ok(Self { offsets: Vec::new(), nulls: None, names, values });
            }
            DataType::List(_) => {
                let lists = array.as_list::<i32>();
                (indexes(lists.value_offsets()), Arc::clone(lists.values()))
            }
            DataType::LargeList(_) => {
                let lists = array.as_list::<i64>();
                (indexes(lists.value_offsets()), Arc::clone(lists.values()))
            }
            DataType::Map(..) => {
                let maps = array.as_map();
                let pairs: ArrayRef = Arc::new(maps.entries().clone());
                (indexes(maps.value_offsets()), pairs)
            }
            _ => return Err(unfit()),
        };
        let pairs: &StructArray = pairs.as_struct_opt().ok_or_else(unfit)?;
        let is_map = matches!(array.data_type(), DataType::Map(..));
        let field = |name: &str, at: usize| match pairs.column_by_name(name) {
            Some(column) => Ok(column),
            None if is_map => pairs.columns().get(at).ok_or_else(unfit),
            None => Err(unfit()),
        };
        let text = |column: &ArrayRef| TextColumn::of(column).map_err(|_| unfit());
        let (names, values) = (text(field("key", 0)?)?, text(field("value", 1)?)?);
        Ok(Self { offsets, nulls: array.nulls().cloned(), names, values })
    }

    fn read<'a>(
        &'a self,
        row: usize,
        pairs: &mut Vec<(&'a str, Option<&'a [u8]>)>,
    ) -> std::result::Result<(), String> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(());
        }
        let (Some(from), Some(to)) = (self.offsets.get(row), self.offsets.get(row + 1)) else {
            return Ok(());
        };
        for at in *from..*to {
            let name = self.names.get(at).and_then(|name| std::str::from_utf8(name).ok());
            pairs.push((name.ok_or("a header without a name")?, self.values.get(at)));
        }
        Ok(())
    }
}

fn indexes<O: ArrowNativeType>(offsets: &[O]) -> Vec<usize> {
    offsets.iter().map(|offset| offset.as_usize()).collect()
}
