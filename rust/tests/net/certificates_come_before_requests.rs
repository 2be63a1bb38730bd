//! The service hears of a client's verified certificate before it sees the first request, in
//! sessions that are resumed too.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use krust::transport::tls::{ServerTls, TlsSettings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};

use crate::double::{Client, TestServer, framed};

/// A key and its certificate.
type Identity = (KeyPair, CertificateDer<'static>);

struct Site {
    server: TestServer,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Site {
    fn start(client_auth: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let own = own.signed_by(&key, &authority).unwrap();
        let settings = [
            ("ssl.keystore.key", key.serialize_pem()),
            ("ssl.keystore.certificate.chain", own.pem()),
            ("ssl.truststore.certificates", authority.pem()),
            ("ssl.client.auth", client_auth.to_owned()),
        ];
        let settings: TlsSettings =
            settings.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
        let tls = Arc::new(ServerTls::new(&settings).unwrap());
        let server = TestServer::with(1, |options| {
            options.tls.insert("PLAINTEXT".into(), tls);
        });
        Self { server, authority }
    }

    fn identity(&self) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(Vec::new()).unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        (key, certificate.der().clone())
    }

    fn client(
        &self,
        version: &'static SupportedProtocolVersion,
        identity: Option<&Identity>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[version]).unwrap();
        let builder = builder.with_root_certificates(roots);
        Arc::new(match identity {
            None => builder.with_no_client_auth(),
            Some((key, certificate)) => {
                let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                builder.with_client_auth_cert(vec![certificate.clone()], key).unwrap()
            }
        })
    }

    /// Sends a request right behind the handshake; the reply, and the kind of the handshake.
    fn call(&self, config: &Arc<ClientConfig>) -> (std::io::Result<Vec<u8>>, HandshakeKind) {
        let Client(stream) = self.server.connect();
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::clone(config), name).unwrap();
        let mut client = StreamOwned::new(session, stream);
        let sent = client.write_all(&framed(b"echo"));
        let mut reply = vec![0; 8];
        let reply = sent.and_then(|()| client.read_exact(&mut reply).map(|()| reply));
        (reply, client.conn.handshake_kind().unwrap())
    }

    fn shown(&self) -> Vec<(Vec<u8>, usize)> {
        self.server.double.certificates.lock().unwrap().clone()
    }
}

#[test]
fn a_session_that_is_resumed_has_the_certificate_of_the_first() {
    for version in [&TLS12, &TLS13] {
        let site = Site::start("required");
        let identity = site.identity();
        let config = site.client(version, Some(&identity));
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let (reply, was) = site.call(&config);
            assert_eq!((reply.unwrap(), was), (framed(b"echo"), kind));
        }
        let certificate = identity.1.to_vec();
        assert_eq!(site.shown(), [(certificate.clone(), 0), (certificate, 1)]);
    }
}

#[test]
fn a_client_without_a_certificate_shows_none() {
    let site = Site::start("requested");
    assert_eq!(site.call(&site.client(&TLS13, None)).0.unwrap(), framed(b"echo"));
    assert_eq!(site.shown(), []);
}

#[test]
fn a_certificate_of_another_authority_is_never_shown() {
    for client_auth in ["requested", "required"] {
        let site = Site::start(client_auth);
        let strangers = Site::start("none").identity();
        for version in [&TLS12, &TLS13] {
            let Client(stream) = site.server.connect();
            let name = ServerName::try_from("localhost").unwrap();
            let config = site.client(version, Some(&strangers));
            let session = ClientConnection::new(config, name).unwrap();
            let mut client = StreamOwned::new(session, stream);
            let sent = client.write_all(&framed(b"echo"));
            sent.and_then(|()| client.read_exact(&mut [0; 8])).unwrap_err();
        }
        assert_eq!(site.shown(), []);
        assert_eq!(site.server.double.frames.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn a_certificate_that_the_service_refuses_ends_the_connection_before_its_first_request() {
    let site = Site::start("required");
    site.server.double.refuses_certificates.store(true, Ordering::SeqCst);
    let identity = site.identity();
    let (reply, _) = site.call(&site.client(&TLS13, Some(&identity)));
    reply.unwrap_err();
    assert_eq!(site.shown().len(), 1);
    assert_eq!(site.server.double.frames.load(Ordering::SeqCst), 0);
}
