//! On a listener with TLS, frames, replies and limits are those of plain text. The client is
//! rustls' own, not krust's.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use krust::net::NetworkOptions;
use krust::storage::FileRange;
use krust::transport::tls::{ServerTls, TlsSettings};
use rcgen::CertifiedKey;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::double::{Client, TestServer, alone, framed};
use crate::oversized_frame_is_refused_before_memory::resident;

/// A server with TLS on its listener, and what a client trusts.
struct TlsServer {
    site: TestServer,
    certificate: CertificateDer<'static>,
}

/// A connection that leaves in pieces of this many bytes, each delivered before the next.
struct Pieces<'a> {
    stream: TcpStream,
    size: usize,
    site: &'a TestServer,
}

impl Read for Pieces<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.stream.read(room)
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.stream.write(&bytes[..bytes.len().min(self.size)])?;
        if self.size < 1 << 20 {
            self.site.turn();
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type TlsClient<'a> = StreamOwned<ClientConnection, Pieces<'a>>;

impl TlsServer {
    fn start() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut NetworkOptions)) -> Self {
        Self::with_settings(&[], change)
    }

    fn with_settings(more: &[(&str, &str)], change: impl FnOnce(&mut NetworkOptions)) -> Self {
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (key, certificate) = (signing_key.serialize_pem(), cert.pem());
        let own = [
            ("ssl.keystore.key", key.as_str()),
            ("ssl.keystore.certificate.chain", &certificate),
            ("ssl.truststore.certificates", &certificate),
        ];
        let all = own.iter().chain(more).map(|(name, text)| ((*name).into(), (*text).into()));
        let settings: TlsSettings = all.collect();
        let tls = Arc::new(ServerTls::new(&settings).unwrap());
        let site = TestServer::with(1, |options| {
            options.tls.insert("PLAINTEXT".into(), tls);
            change(options);
        });
        Self { site, certificate: cert.der().clone() }
    }

    fn connect(&self) -> TlsClient<'_> {
        self.connect_in_pieces(usize::MAX)
    }

    fn connect_in_pieces(&self, size: usize) -> TlsClient<'_> {
        self.connect_with(size, rustls::DEFAULT_VERSIONS)
    }

    fn connect_with(
        &self,
        size: usize,
        versions: &[&'static SupportedProtocolVersion],
    ) -> TlsClient<'_> {
        let Client(stream) = self.site.connect();
        let name = ServerName::try_from("localhost").unwrap();
        let config = trusting(self.certificate.clone(), versions);
        let session = ClientConnection::new(config, name).unwrap();
        StreamOwned::new(session, Pieces { stream, size, site: &self.site })
    }
}

fn trusting(
    certificate: CertificateDer<'static>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(versions).unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

fn reply(client: &mut TlsClient<'_>) -> Vec<u8> {
    let mut prefix = [0; 4];
    client.read_exact(&mut prefix).unwrap();
    let mut body = vec![0; u32::from_be_bytes(prefix) as usize];
    client.read_exact(&mut body).unwrap();
    body
}

fn call(client: &mut TlsClient<'_>, body: &[u8]) -> Vec<u8> {
    client.write_all(&framed(body)).unwrap();
    reply(client)
}

#[test]
fn frames_and_replies_of_every_size_pass_through_tls() {
    let server = TlsServer::start();
    let mut client = server.connect();
    for size in [1, 3, 16_380, 16_384, 65_532, 65_533, 70_000, 200_000, 1 << 20, 5 << 20, 2] {
        let body: Vec<u8> = (0..size).map(|n: usize| if n == 0 { b'e' } else { n as u8 }).collect();
        assert!(call(&mut client, &body) == body, "the frame of {size} bytes");
    }
}

#[test]
fn many_small_frames_in_one_record_are_answered_in_their_order() {
    let server = TlsServer::start();
    let mut client = server.connect();
    let wire: Vec<u8> = (0..2_000_u32).flat_map(|n| framed(&n.to_be_bytes())).collect();
    client.write_all(&wire).unwrap();
    for n in 0..2_000_u32 {
        assert_eq!(reply(&mut client), n.to_be_bytes());
    }
}

#[test]
fn a_handshake_and_records_that_come_byte_by_byte_are_read() {
    let server = TlsServer::start();
    let mut client = server.connect_in_pieces(1);
    assert_eq!(call(&mut client, b"e-slowly"), b"e-slowly");
}

#[test]
fn file_ranges_are_encrypted_in_their_place() {
    let content: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&content).unwrap();
    let server = TlsServer::start();
    let range = FileRange { file: Arc::new(file), position: 7, len: 250_000 };
    server.site.double.range.set(range).ok().unwrap();
    let mut client = server.connect();
    for _ in 0..3 {
        assert!(call(&mut client, b"r") == content[7..250_007]);
    }
    assert_eq!(call(&mut client, b"e"), b"e");
}

#[test]
fn a_long_poll_is_answered_when_its_answer_comes() {
    let server = TlsServer::start();
    let mut client = server.connect();
    client.write_all(&framed(b"hA")).unwrap();
    crate::double::until(|| server.site.double.frames.load(Ordering::SeqCst) == 1);
    client.write_all(&framed(b"e1")).unwrap();
    server.site.fill(b'A');
    assert_eq!(reply(&mut client), b"fA");
    assert_eq!(reply(&mut client), b"e1");
}

#[test]
fn a_handshake_that_does_not_end_is_closed_and_others_stay() {
    let server = TlsServer::with(|options| options.login_ms = 10_000);
    let mut silent = server.site.connect();
    let mut client = server.connect();
    assert_eq!(call(&mut client, b"e"), b"e");
    silent.0.write_all(&[0x16, 3, 1]).unwrap();
    silent.delivered();
    server.site.advance(9_000);
    assert_eq!(server.site.server.connections(), 2);
    server.site.advance(1_500);
    assert!(silent.is_closed());
    assert_eq!(call(&mut client, b"e"), b"e");
}

#[test]
fn plain_text_on_a_tls_listener_is_answered_with_an_alert_and_closed() {
    let server = TlsServer::start();
    let mut plain = server.site.connect();
    plain.send(b"e-plain");
    let mut first = [0; 2];
    plain.0.read_exact(&mut first).unwrap();
    assert_eq!(first, [0x15, 3], "an alert");
    assert!(plain.is_closed());
    assert_eq!(call(&mut server.connect(), b"e"), b"e");
}

#[test]
fn damaged_records_close_their_connection_alone() {
    /// A header of 5, a frame of 13, its type, and 16 that authenticate it.
    const RECORD: usize = 35;
    let server = TlsServer::start();
    let mut good = server.connect();
    assert_eq!(call(&mut good, b"e"), b"e");
    // Type and version in the header are the same for every record and count for nothing.
    for damaged in (0..200).filter(|damaged| damaged % RECORD > 2) {
        let mut client = server.connect();
        assert_eq!(call(&mut client, b"e"), b"e");
        let mut record = Vec::new();
        client.conn.writer().write_all(&framed(b"e-damaged")).unwrap();
        client.conn.write_tls(&mut record).unwrap();
        assert_eq!(record.len(), RECORD);
        let at = damaged % RECORD;
        record[at] ^= 1 << (damaged % 8);
        client.sock.stream.write_all(&record).unwrap();
        drop(client.sock.stream.shutdown(std::net::Shutdown::Write));
        let mut rest = Vec::new();
        // The end may be an alert, a reset or the end of the stream; it comes in any case.
        drop(client.sock.stream.read_to_end(&mut rest));
    }
    let frames = server.site.double.frames.load(Ordering::SeqCst);
    assert_eq!(frames, server.site.double.opened.load(Ordering::SeqCst), "the first of each");
    assert_eq!(call(&mut good, b"e"), b"e");
}

#[test]
fn a_peer_that_says_that_nothing_follows_is_closed() {
    let server = TlsServer::start();
    let mut client = server.connect();
    assert_eq!(call(&mut client, b"e"), b"e");
    client.conn.send_close_notify();
    client.flush().unwrap();
    crate::double::until(|| server.site.double.closed.load(Ordering::SeqCst) == 1);
}

#[test]
fn a_reply_before_the_end_is_followed_by_a_close_notify() {
    let server = TlsServer::start();
    let mut client = server.connect();
    assert_eq!(call(&mut client, b"c"), b"c");
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0, "an orderly end, no truncation");
}

#[test]
fn a_slow_reader_of_a_tls_listener_costs_bounded_memory() {
    let name = "tls_connections::a_slow_reader_of_a_tls_listener_costs_bounded_memory";
    alone(name, || {
        let server = TlsServer::start();
        let mut client = server.connect();
        assert_eq!(call(&mut client, b"e"), b"e");
        let before = resident();
        let request = framed(&[b"b".as_slice(), &(1_u32 << 20).to_be_bytes()].concat());
        for _ in 0..100 {
            client.write_all(&request).unwrap();
        }
        server.site.turn();
        let grown = resident().saturating_sub(before);
        assert!(grown < 16 << 20, "{grown} bytes for a reader that does not read");
        for _ in 0..100 {
            assert_eq!(reply(&mut client).len(), 1 << 20);
        }
    });
}

#[test]
fn an_idle_tls_connection_holds_no_buffer() {
    alone("tls_connections::an_idle_tls_connection_holds_no_buffer", || {
        const CONNECTIONS: usize = 200;
        let server = TlsServer::start();
        let body = vec![b'e'; 30_000];
        assert_eq!(call(&mut server.connect(), &body).len(), body.len());
        // The client's half is in this process too: its session and its buffers.
        let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
        let before = resident();
        for client in &mut clients {
            assert_eq!(call(client, &body).len(), body.len());
        }
        let each = resident().saturating_sub(before) / CONNECTIONS;
        assert!(each < 64 << 10, "{each} bytes for an idle connection, with the client's half");
    });
}

#[test]
fn a_client_without_the_certificate_that_is_required_is_refused_alone() {
    for version in rustls::ALL_VERSIONS {
        let server = TlsServer::with_settings(&[("ssl.client.auth", "required")], |_| {});
        let mut client = server.connect_with(usize::MAX, &[version]);
        let sent = client.write_all(&framed(b"e"));
        sent.and_then(|()| client.read(&mut [0; 8])).expect_err("it shows no certificate");
        crate::double::until(|| server.site.double.closed.load(Ordering::SeqCst) == 1);
        assert!(!server.site.server.has_failed());
        assert_eq!(server.site.double.frames.load(Ordering::SeqCst), 0);
    }
}
