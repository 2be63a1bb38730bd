//! Records as Arrow columns, in whole batches: the columns of Spark's Kafka source.
//!
//! [`Column`] is the table of columns; a [`Projection`] is any of them in any order. [`scan`] reads
//! ranges of offsets: [`remote`] from brokers, [`local`] from segment files. Both fill a
//! [`builder`], which holds one batch and fills only the requested columns. [`arrow_records`] turns
//! Arrow tables into records.
//! Formats: binary and utf8 with 32-bit offsets, never views. All columns may be null. A record
//!     without a time has -1 ms, as in Kafka; one without headers has null there, as in Spark.
//! Invariants: a column of a batch is below 2 GiB. The records of a partition come in the order of
//!     offsets, each once. A range ends when the next offset is its end or above.
//! Threads: plain values, one thread at a time. Batches may be dropped on any thread.
//! Not promised: an order between partitions.

pub mod arrow_records;
mod buffer_pool;
pub mod builder;
pub mod local;
pub mod remote;
pub mod scan;

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use crate::client::{Error, Result};

/// The columns: one for each field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The key.
    Key,
    /// The value.
    Value,
    /// The topic's name.
    Topic,
    /// The partition.
    Partition,
    /// The offset in the partition.
    Offset,
    /// The time, by the clock that `TimestampType` names.
    Timestamp,
    /// -1: the format has no times; 0: the producer's; 1: the broker's.
    TimestampType,
    /// The headers in their order.
    Headers,
}

impl Column {
    /// All of them, in the order of Spark's Kafka source.
    pub const ALL: [Self; 8] = [
        Self::Key,
        Self::Value,
        Self::Topic,
        Self::Partition,
        Self::Offset,
        Self::Timestamp,
        Self::TimestampType,
        Self::Headers,
    ];

    /// The name in a schema.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Value => "value",
            Self::Topic => "topic",
            Self::Partition => "partition",
            Self::Offset => "offset",
            Self::Timestamp => "timestamp",
            Self::TimestampType => "timestampType",
            Self::Headers => "headers",
        }
    }

    /// The type in a schema.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Key | Self::Value => DataType::Binary,
            Self::Topic => DataType::Utf8,
            Self::Partition | Self::TimestampType => DataType::Int32,
            Self::Offset => DataType::Int64,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Headers => DataType::List(Arc::new(Field::new(
                "element",
                DataType::Struct(header_fields()),
                true,
            ))),
        }
    }
}

/// The fields of a header.
fn header_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ])
}

/// The requested columns in their order.
#[derive(Clone, Debug)]
pub struct Projection {
    columns: Vec<Column>,
    schema: SchemaRef,
}

impl Projection {
    /// The columns with these names, each at most once.
    pub fn of(names: &[impl AsRef<str>]) -> Result<Self> {
        let mut columns = Vec::with_capacity(names.len());
        for name in names.iter().map(AsRef::as_ref) {
            let found = Column::ALL.into_iter().find(|column| column.name() == name);
            let Some(column) = found else {
                let known = Column::ALL.map(Column::name).join(", ");
                return Err(Error::Invalid(format!("there is no column {name:?}, but {known}")));
            };
            if columns.contains(&column) {
                return Err(Error::Invalid(format!("column {name:?} is asked for twice")));
            }
            columns.push(column);
        }
        let fields = columns.iter().map(|c| Field::new(c.name(), c.data_type(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Self { columns, schema })
    }

    /// The columns in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The schema of every batch.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn has(&self, column: Column) -> bool {
        self.columns.contains(&column)
    }
}
