//! A connection whose long reply is on its way sends no more than a share of it in a turn while
//! others have short ones, and leaves every second turn to them; no connection waits for ever.

use std::cell::Cell;
use std::io::Read;
use std::sync::atomic::Ordering;

use crate::double::{Client, TestServer, framed, until};

const SHARE: usize = 64 << 10;
const LONG: u32 = 4 << 20;

/// A server whose loop waits inside every turn, in a request of one of two clients.
struct Stepped {
    site: TestServer,
    others: [Client; 2],
    turns: usize,
}

impl Stepped {
    fn new(site: TestServer) -> Self {
        let mut others = [site.connect(), site.connect()];
        others[0].send(b"g");
        until(|| site.double.gates.load(Ordering::SeqCst) == 1);
        Self { site, others, turns: 0 }
    }

    /// Lets the loop go on to the next turn, which has another request.
    fn turn(&mut self) {
        self.turns += 1;
        self.others[self.turns % 2].send(b"g");
        self.site.double.opened_gates.store(self.turns, Ordering::SeqCst);
        until(|| self.site.double.gates.load(Ordering::SeqCst) == self.turns + 1);
    }

    fn run(&self) {
        self.site.double.opened_gates.store(usize::MAX, Ordering::SeqCst);
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        self.run();
    }
}

/// Who asked for a long reply, and the bytes of it that came.
struct Reader {
    client: Client,
    came: Cell<usize>,
}

impl Reader {
    fn ask(mut client: Client) -> Self {
        client.0.set_nonblocking(true).unwrap();
        client.send(&[b"b".as_slice(), &LONG.to_be_bytes()].concat());
        Self { client, came: Cell::new(0) }
    }

    /// Takes what is there.
    fn came(&self) -> usize {
        let mut bytes = [0; SHARE];
        while let Ok(count @ 1..) = (&self.client.0).read(&mut bytes) {
            self.came.set(self.came.get() + count);
        }
        self.came.get()
    }

    fn gets_the_rest(&self) {
        until(|| self.came() == framed(&[]).len() + LONG as usize);
    }
}

#[test]
fn a_long_reply_beside_short_ones_is_sent_in_every_second_turn() {
    let site = TestServer::start();
    site.connect().call(b"echo");
    let client = site.connect();
    let mut stepped = Stepped::new(site);
    let reader = Reader::ask(client);
    for turns in 1..=12_usize {
        stepped.turn();
        let came = reader.came();
        assert!(came <= turns.div_ceil(2) * SHARE, "{came} bytes in {turns} turns");
    }
    until(|| reader.came() >= 5 * SHARE);
    stepped.run();
    reader.gets_the_rest();
}

#[test]
fn a_long_reply_alone_is_sent_as_fast_as_the_socket_allows() {
    let site = TestServer::start();
    site.connect().call(b"echo");
    site.advance(2);
    let client = site.connect();
    let mut stepped = Stepped::new(site);
    let reader = Reader::ask(client);
    // Small shares would take seven turns. The socket may be full in some of these.
    for _ in 0..5 {
        stepped.turn();
        reader.came();
    }
    until(|| reader.came() > 3 * SHARE);
    stepped.run();
    reader.gets_the_rest();
}
