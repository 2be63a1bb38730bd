//! Without free descriptors, accepting pauses instead of spinning, and resumes by itself.
//!
//! The limit belongs to the process, so the test runs in one of its own.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::double::{Client, TestServer, alone, until};

/// Accepting rests for 200 ms; a thread that spins goes round a thousand times meanwhile.
const REST: Duration = Duration::from_millis(200);
const CALLS: u128 = 20;

#[test]
fn accept_pauses_without_descriptors() {
    alone("accept_pauses_without_descriptors::accept_pauses_without_descriptors", starve);
}

fn starve() {
    let site = TestServer::start();
    let mut good = site.connect();
    assert_eq!(good.call(b"e"), b"e");
    // Connected before the limit falls, accepted after it: the kernel's queue holds them.
    let whole = getrlimit(Resource::Nofile);
    let sockets: Vec<_> = (0..3).map(|_| unconnected()).collect();
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: whole.maximum }).unwrap();
    let held: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    assert!(held.len() > 3);

    let address = site.address();
    for socket in &sockets {
        rustix::net::connect(socket, &address).unwrap();
    }
    let looks = || site.double.looks.load(Ordering::SeqCst);
    let (before, start) = (looks(), Instant::now());
    for _ in 0..CALLS {
        assert_eq!(good.call(b"e"), b"e");
        std::thread::park_timeout(REST / 20);
    }
    assert_eq!(site.server.connections(), 1);
    // Each call takes a round or two of two looks, and so does each rest that is over.
    let (looks, rests) = (looks() - before, start.elapsed().as_nanos() / REST.as_nanos());
    assert!(looks as u128 <= 10 * (CALLS + rests + 1), "accepting spins: {looks} looks");

    drop(held);
    site.clock.advance(1_000);
    site.turn();
    until(|| site.server.connections() == 4);
    for socket in sockets {
        let mut client = Client(std::net::TcpStream::from(socket));
        assert_eq!(client.call(b"e-late"), b"e-late");
    }
}

#[test]
fn connections_leave_the_last_descriptors_to_files() {
    alone(
        "accept_pauses_without_descriptors::connections_leave_the_last_descriptors_to_files",
        crowd,
    );
}

fn crowd() {
    const LIMIT: u64 = 160;
    let site = TestServer::start();
    let mut good = site.connect();
    let sockets: Vec<_> = (0..200).map(|_| unconnected()).collect();
    // Above those of the clients, which are of this process too.
    let limit = LIMIT + sockets.len() as u64;
    let whole = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: whole.maximum }).unwrap();
    let address = site.address();
    sockets.iter().for_each(|socket| rustix::net::connect(socket, &address).unwrap());
    let open = || std::fs::read_dir("/dev/fd").unwrap().count() as u64 - 1;
    let shared = limit - krust::sys::reserved_descriptors(limit);
    until(|| {
        site.advance(250);
        open() > shared
    });
    let accepted = site.server.connections();
    for _ in 0..CALLS {
        site.advance(75);
        assert_eq!(good.call(b"e"), b"e");
    }
    assert_eq!(site.server.connections(), accepted);
    assert_eq!(open(), shared + 1, "the one that took the first of the reserve was the last");
    drop(sockets);
    until(|| site.server.connections() == 1);
    site.clock.advance(1_000);
    assert_eq!(site.connect().call(b"e"), b"e");
}

fn unconnected() -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketType, socket};
    socket(AddressFamily::INET, SocketType::STREAM, None).unwrap()
}
