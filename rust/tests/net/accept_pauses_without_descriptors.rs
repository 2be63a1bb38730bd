//! Out of descriptors, accepting rests instead of spinning, and resumes by itself.
//!
//! The limit belongs to the process, so the test runs in one of its own.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::double::{Client, Site, alone, until};

#[test]
fn accept_pauses_without_descriptors() {
    alone("accept_pauses_without_descriptors::accept_pauses_without_descriptors", starve);
}

fn starve() {
    let site = Site::start();
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
    let before = cpu_ms();
    for _ in 0..20 {
        assert_eq!(good.call(b"e"), b"e");
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    assert_eq!(site.server.connections(), 1);
    assert!(cpu_ms() - before < 150, "accepting spins");

    drop(held);
    site.clock.advance(1_000);
    site.turn();
    until(|| site.server.connections() == 4);
    for socket in sockets {
        let mut client = Client(std::net::TcpStream::from(socket));
        assert_eq!(client.call(b"e-late"), b"e-late");
    }
}

fn unconnected() -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketType, socket};
    socket(AddressFamily::INET, SocketType::STREAM, None).unwrap()
}

/// CPU time of this process so far, in milliseconds.
fn cpu_ms() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}
