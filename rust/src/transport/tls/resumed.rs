//! The certificate of a client that resumes an earlier session.
//!
//! Such a client shows no certificate again. rustls keeps the one of that session, and does not ask
//! whether it still holds. So it is verified again: none counts that has expired since.
//! Threads: any.

use rustls::HandshakeKind;
use rustls::pki_types::UnixTime;
use rustls::server::UnbufferedServerConnection;
use rustls::server::danger::ClientCertVerifier;

/// Verifies the client's certificate if the handshake, which is complete, resumed a session.
pub(super) fn verify_again(
    connection: &UnbufferedServerConnection,
    verifier: &dyn ClientCertVerifier,
) -> Result<(), rustls::Error> {
    let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
    let certificates = connection.peer_certificates().unwrap_or_default();
    match certificates.split_first().filter(|_| is_resumed) {
        Some((own, others)) => verifier.verify_client_cert(own, others, UnixTime::now()).map(drop),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::server::WebPkiClientVerifier;
    use rustls::server::danger::ClientCertVerified;
    use rustls::version::{TLS12, TLS13};
    use rustls::{
        CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
        RootCertStore, ServerConfig, SignatureScheme, SupportedProtocolVersion,
    };

    use super::*;
    use crate::transport::tls::session::{TlsBuffers, TlsSession};

    /// Verifies as often as it may; then every certificate has expired.
    #[derive(Debug)]
    struct Expiring(Arc<dyn ClientCertVerifier>, AtomicUsize);

    impl ClientCertVerifier for Expiring {
        fn root_hint_subjects(&self) -> &[DistinguishedName] {
            self.0.root_hint_subjects()
        }

        fn verify_client_cert(
            &self,
            own: &CertificateDer<'_>,
            others: &[CertificateDer<'_>],
            now: UnixTime,
        ) -> Result<ClientCertVerified, Error> {
            let less = |left: usize| left.checked_sub(1);
            match self.1.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
                Ok(_) => self.0.verify_client_cert(own, others, now),
                Err(_) => Err(Error::InvalidCertificate(CertificateError::Expired)),
            }
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
            self.0.verify_tls12_signature(message, certificate, signed)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
            self.0.verify_tls13_signature(message, certificate, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.supported_verify_schemes()
        }
    }

    type Configs = (Arc<ServerConfig>, Arc<dyn ClientCertVerifier>, Arc<ClientConfig>);

    /// Both sides trust and show one certificate, which holds for so many handshakes.
    fn configs(version: &'static SupportedProtocolVersion, holds: usize) -> Configs {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (chain, encoded) = (vec![made.cert.der().clone()], made.signing_key.serialize_der());
        let key = || PrivateKeyDer::try_from(encoded.clone()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let (roots, provider) =
            (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()));
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let verifier: Arc<dyn ClientCertVerifier> =
            Arc::new(Expiring(verifier.unwrap(), AtomicUsize::new(holds)));
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_client_cert_verifier(verifier.clone())
            .with_single_cert(chain.clone(), key())
            .unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key())
            .unwrap();
        (Arc::new(server), verifier, Arc::new(client))
    }

    /// A handshake; the server's session, or why it failed there.
    fn shake((server, verifier, client): &Configs) -> io::Result<TlsSession> {
        let (mut at_server, mut at_client) = UnixStream::pair()?;
        at_server.set_nonblocking(true)?;
        at_client.set_nonblocking(true)?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = TlsSession::client(Arc::clone(client), name).unwrap();
        let mut server =
            TlsSession::server(Arc::clone(server), Some(Arc::clone(verifier))).unwrap();
        let buffers = &mut TlsBuffers::default();
        while server.is_handshaking() || client.is_handshaking() {
            client.send_waiting(&at_client)?;
            pass(server.read_handshake(&mut at_server, buffers))?;
            server.send_waiting(&at_server)?;
            pass(client.read_handshake(&mut at_client, buffers))?;
        }
        // The session's ticket.
        pass(client.read_handshake(&mut at_client, buffers))?;
        Ok(server)
    }

    fn pass(read: io::Result<()>) -> io::Result<()> {
        read.or_else(|error| match error.kind() {
            ErrorKind::WouldBlock => Ok(()),
            _ => Err(error),
        })
    }

    #[test]
    fn a_resumed_session_is_refused_once_its_certificate_has_expired() {
        for version in [&TLS12, &TLS13] {
            let configs = configs(version, 2);
            for _ in ["full", "resumed"] {
                assert_eq!(shake(&configs).unwrap().peer_certificates().len(), 1);
            }
            let error = shake(&configs).err().unwrap();
            assert!(error.to_string().contains("Expired"), "{error}");
        }
    }
}
