//! TLS records at both ends of a connection, in pieces: bytes of a fuzzer, and those of a real
//! session in which one byte is damaged. No bytes may panic, and a peer reads nothing but what the
//! other one sent, all of it if nothing was damaged.

#![no_main]

use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;

use krust::transport::tls::{ClientTls, ServerTls, TlsBuffers, TlsSession};
use libfuzzer_sys::fuzz_target;

/// A key, its certificate for localhost, and the authority's certificate.
const IDENTITY: &str = include_str!("../identity.pem");

struct Ends {
    server: ServerTls,
    clients: [ClientTls; 2],
}

static ENDS: LazyLock<Ends> = LazyLock::new(|| {
    let texts = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    };
    let client = |version: &str| {
        let trusted = ("ssl.truststore.certificates", IDENTITY);
        ClientTls::new(&texts(&[trusted, ("ssl.enabled.protocols", version)])).expect("a client")
    };
    let key = [("ssl.keystore.key", IDENTITY), ("ssl.keystore.certificate.chain", IDENTITY)];
    Ends {
        server: ServerTls::new(&texts(&key)).expect("a listener"),
        clients: [client("TLSv1.2"), client("TLSv1.3")],
    }
});

/// What has arrived, in pieces; then nothing more for now.
struct Pieces<'a> {
    bytes: &'a [u8],
    piece: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.piece.min(room.len()).min(self.bytes.len());
        let (now, later) = self.bytes.split_at(count);
        room[..count].copy_from_slice(now);
        self.bytes = later;
        Ok(count)
    }
}

/// One end: its session, its socket, and what it has read.
struct End {
    session: TlsSession,
    socket: UnixStream,
    found: Vec<u8>,
}

impl End {
    /// Takes what has arrived. Returns whether the connection goes on.
    fn take(&mut self, arrived: &[u8], piece: usize, buffers: &mut TlsBuffers) -> bool {
        let mut pieces = Pieces { bytes: arrived, piece };
        loop {
            let mut room = [0; 100];
            let read = match self.session.is_handshaking() {
                true => self.session.read_handshake(&mut pieces, buffers).map(|()| None),
                false => self.session.read(&mut pieces, &mut room, buffers).map(Some),
            };
            match read {
                Ok(None) => {}
                Ok(Some(0)) => return false,
                Ok(Some(count)) => self.found.extend_from_slice(&room[..count]),
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }
}

/// What passes between the ends, with one byte damaged.
struct Wire {
    passed: usize,
    at: usize,
    mask: u8,
}

impl Wire {
    /// Takes what an end has sent from the socket of the other one.
    fn pass(
        &mut self,
        from: &mut End,
        to: &mut End,
        piece: usize,
        buffers: &mut TlsBuffers,
    ) -> bool {
        from.session.send_waiting(&from.socket).expect("room for a handshake");
        let mut bytes = vec![0; 1 << 16];
        let count = to.socket.read(&mut bytes).unwrap_or(0);
        bytes.truncate(count);
        if let Some(byte) = self.at.checked_sub(self.passed).and_then(|at| bytes.get_mut(at)) {
            *byte ^= self.mask;
        }
        self.passed += count;
        to.take(&bytes, piece, buffers)
    }
}

fn ends(version: u8) -> (End, End) {
    let (near, far) = UnixStream::pair().expect("two sockets");
    for socket in [&near, &far] {
        socket.set_nonblocking(true).expect("a socket that does not wait");
    }
    let client = ENDS.clients[usize::from(version & 1)].connect("localhost").expect("a session");
    let server = ENDS.server.accept().expect("a session");
    (
        End { session: client, socket: near, found: Vec::new() },
        End { session: server, socket: far, found: Vec::new() },
    )
}

fuzz_target!(|input: &[u8]| {
    let [version, piece, high, low, mask, bytes @ ..] = input else { return };
    let piece = usize::from(*piece) + 1;
    let mut buffers = TlsBuffers::default();
    let (mut client, mut server) = ends(*version);
    client.take(bytes, piece, &mut buffers);
    server.take(bytes, piece, &mut buffers);
    assert!(client.found.is_empty() && server.found.is_empty());

    let (mut client, mut server) = ends(*version);
    let at = usize::from(u16::from_be_bytes([*high, *low]));
    let mut wire = Wire { passed: 0, at, mask: *mask };
    let mut goes_on = true;
    let mut has_sent = false;
    for _ in 0..6 {
        if goes_on && !client.session.is_handshaking() && !has_sent {
            client.session.send_waiting(&client.socket).expect("room for the last message");
            client.session.send(&client.socket, bytes, &mut buffers).expect("room for the bytes");
            has_sent = true;
        }
        goes_on = goes_on && wire.pass(&mut client, &mut server, piece, &mut buffers);
        goes_on = goes_on && wire.pass(&mut server, &mut client, piece, &mut buffers);
    }
    assert!(client.found.is_empty() && bytes.starts_with(&server.found));
    assert!(*mask != 0 || server.found == bytes);
});
