//! The cost of an access check beside 10,000 ACLs.

#![expect(missing_docs, reason = "criterion's macros")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use krust::broker::acls::{AclBinding, AclClient, AclTable, BesideAcls, Operation, ResourceType};

/// ACLs of 100 users: each has 50 topics by name and 50 by prefix, of 20 lengths.
fn table() -> Arc<AclTable> {
    let bindings = (0..10_000).map(|number| {
        let (user, topic) = (number % 100, number / 100);
        let is_prefixed = topic % 2 == 1;
        let name = match is_prefixed {
            true => format!("team-{topic}-{}", "x".repeat(topic / 2 % 20)),
            false => format!("orders-{topic}"),
        };
        AclBinding {
            resource_type: ResourceType::Topic,
            is_prefixed,
            name,
            principal: format!("User:user-{user}"),
            host: "*".into(),
            operation: Operation::Write,
            is_allow: true,
        }
    });
    Arc::new(AclTable::new(&bindings.collect::<Vec<_>>()))
}

fn check(c: &mut Criterion) {
    let table = table();
    let (user, host): (Arc<str>, Arc<str>) = ("user-42".into(), "10.0.0.1".into());
    let mut group = c.benchmark_group("acls");
    for (what, name, expected) in [
        ("by name", "orders-42", true),
        ("by prefix", "team-99-xxxxxxxxx-orders", true),
        ("denied", "somebody-else's-topic-of-a-long-name", false),
    ] {
        group.bench_function(BenchmarkId::new("first check of a client", what), |b| {
            b.iter(|| {
                let client = AclClient::new(black_box(&table), (&user, &host), BesideAcls::Nothing);
                let allowed = client.allows(Operation::Write, ResourceType::Topic, black_box(name));
                assert_eq!(allowed, expected);
            });
        });
        let client = AclClient::new(&table, (&user, &host), BesideAcls::Nothing);
        group.bench_function(BenchmarkId::new("the same check again", what), |b| {
            b.iter(|| {
                let allowed = client.allows(Operation::Write, ResourceType::Topic, black_box(name));
                assert_eq!(allowed, expected);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, check);
criterion_main!(benches);
