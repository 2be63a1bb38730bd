//! The cost of a record: the check of a producer's batch, both conversions, the codecs.
//! Figures are per record (`elements`) or per byte of the inflated batch (`bytes`).

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use krust::record::batch::{self, Batch, BatchBuilder, BatchFields, NewRecord, ValidationRules};
use krust::record::compression::{Codec, Inflate, deflate};
use krust::record::convert;

const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

/// A batch of `count` records with a key of 8 bytes and a value of `size`, half of it text.
fn batch_of(count: u32, size: usize, codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    let mut state = 1u32;
    for index in 0..count {
        let mut value = b"level=info service=checkout message=accepted ".repeat(size / 45 + 1);
        value.truncate(size);
        for byte in value.iter_mut().skip(size / 2) {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = b'a' + (state >> 28) as u8;
        }
        builder.add(&NewRecord {
            timestamp: 1_700_000_000_000 + i64::from(index / 4),
            key: Some(format!("{index:08}").as_bytes()),
            value: Some(&value),
            headers: &[],
        });
    }
    builder.to_bytes(&BatchFields { codec, ..BatchFields::default() }).unwrap()
}

fn check(c: &mut Criterion) {
    let mut group = c.benchmark_group("check");
    for (name, count, size) in [("10 B", 10_000, 10), ("100 B", 8_000, 100), ("1 KB", 1_000, 1000)]
    {
        let bytes = batch_of(count, size, Codec::None);
        group.throughput(Throughput::Elements(u64::from(count)));
        group.bench_function(BenchmarkId::new("in place", name), |b| {
            b.iter(|| {
                let batch = Batch::parse(black_box(&bytes)).unwrap();
                batch::check(&batch, &ValidationRules::default()).unwrap()
            });
        });
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(BenchmarkId::new("checksum alone", name), |b| {
            b.iter(|| Batch::parse(black_box(&bytes)).unwrap().crc_ok());
        });
    }
    for codec in CODECS {
        let bytes = batch_of(8_000, 100, codec);
        group.throughput(Throughput::Elements(8_000));
        group.bench_function(BenchmarkId::new("with keys", codec.name()), |b| {
            let rules = ValidationRules { need_keys: true, ..ValidationRules::default() };
            b.iter(|| batch::check(&Batch::parse(black_box(&bytes)).unwrap(), &rules).unwrap());
        });
    }
    group.finish();
}

fn conversion(c: &mut Criterion) {
    let mut group = c.benchmark_group("convert");
    let target = convert::LegacyTarget { magic: 1, first_offset: 0 };
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4] {
        let bytes = batch_of(8_000, 100, codec);
        let inflated = batch_of(8_000, 100, Codec::None).len();
        let batch = Batch::parse(&bytes).unwrap();
        let mut out = Vec::new();
        group.throughput(Throughput::Bytes(inflated as u64));
        group.bench_function(BenchmarkId::new("to_legacy", codec.name()), |b| {
            b.iter(|| {
                out.clear();
                let mut limit = usize::MAX;
                convert::to_legacy(black_box(&batch), &target, &mut limit, &mut out).unwrap()
            });
        });
        let set = out.clone();
        group.bench_function(BenchmarkId::new("to_v2", codec.name()), |b| {
            b.iter(|| {
                out.clear();
                convert::to_v2(black_box(&set), usize::MAX, &mut out).unwrap();
            });
        });
    }
    group.finish();
}

fn codecs(c: &mut Criterion) {
    let mut group = c.benchmark_group("codec");
    let plain = batch_of(8_000, 100, Codec::None);
    group.throughput(Throughput::Bytes(plain.len() as u64));
    for codec in CODECS {
        let mut packed = Vec::new();
        group.bench_function(BenchmarkId::new("deflate", codec.name()), |b| {
            b.iter(|| {
                packed.clear();
                deflate(codec, None, black_box(&plain), &mut packed).unwrap();
            });
        });
        let mut out = Vec::new();
        group.bench_function(BenchmarkId::new("inflate", codec.name()), |b| {
            b.iter(|| {
                out.clear();
                let inflate = Inflate::new(codec, black_box(&packed)).unwrap();
                inflate.read_all(usize::MAX, &mut out).unwrap();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, check, conversion, codecs);
criterion_main!(benches);
