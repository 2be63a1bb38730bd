//! The TLS configuration of a listener and of a client, made of Kafka's settings.
//!
//! A listener's configuration can be replaced while it serves: new connections use the new one.
//! Threads: any.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion,
};
use thiserror::Error;

use super::keystore::Identity;
use super::session::TlsSession;
use super::stores::{self, TlsSettings};
use super::verify::{ChainOnly, Unchecked};

/// Why TLS settings cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// Keys or certificates that are missing or cannot be read.
    #[error("{0}")]
    Store(String),
    /// A name that is not known or not offered.
    #[error("{0}")]
    Name(String),
    /// The parts do not fit together.
    #[error("{0}")]
    Mismatch(#[from] rustls::Error),
}

/// What a listener asks of its clients (`ssl.client.auth`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientAuth {
    /// No certificate is asked for.
    None,
    /// A certificate is asked for, and checked if one is sent.
    Requested,
    /// A client without a valid certificate is refused.
    Required,
}

/// How a client checks a broker's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CertificateCheck {
    /// The chain and the host name (`ssl.endpoint.identification.algorithm=https`).
    ChainAndName,
    /// The chain alone (an empty `ssl.endpoint.identification.algorithm`).
    ChainOnly,
    /// Nothing (`enable.ssl.certificate.verification=false` of librdkafka).
    Nothing,
}

/// The TLS of one listener.
pub struct ServerTls(ArcSwap<ListenerTls>);

/// What the sessions of a listener are made of.
struct ListenerTls {
    config: Arc<ServerConfig>,
    /// Of `config`; `None`: clients show no certificates.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

/// The TLS of one client.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

impl ServerTls {
    /// The configuration of a listener. Errors: no identity; the key does not fit the certificate;
    /// client certificates are asked for and nothing is trusted.
    pub fn new(settings: &TlsSettings) -> Result<Self, TlsError> {
        Ok(Self(ArcSwap::from_pointee(listener_tls(settings)?)))
    }

    /// Replaces the configuration for connections that begin from now on.
    pub fn replace(&self, other: Self) {
        self.0.store(other.0.load_full());
    }

    /// The session of a new connection.
    pub fn accept(&self) -> Result<TlsSession, TlsError> {
        let tls = self.0.load();
        Ok(TlsSession::server(Arc::clone(&tls.config), tls.verifier.clone())?)
    }
}

impl ClientTls {
    /// The configuration of a client. It trusts the authorities of the system unless the settings
    /// name others.
    pub fn new(settings: &TlsSettings) -> Result<Self, TlsError> {
        let provider = provider(settings)?;
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions(settings)?)?;
        let trusted = || match stores::trusted(settings)? {
            Some(certificates) => roots(certificates),
            None => roots(rustls_native_certs::load_native_certs().certs),
        };
        let builder = match certificate_check(settings)? {
            CertificateCheck::ChainAndName => {
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(trusted()?, provider).build();
                builder.with_webpki_verifier(verifier.map_err(|error| unusable(&error))?)
            }
            CertificateCheck::ChainOnly => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(ChainOnly::new(trusted()?, provider))),
            CertificateCheck::Nothing => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Unchecked::new(provider))),
        };
        let config = match stores::identity(settings)? {
            Some(Identity { chain, key }) => builder.with_client_auth_cert(chain, key)?,
            None => builder.with_no_client_auth(),
        };
        Ok(Self(Arc::new(config)))
    }

    /// The session of a new connection to `host`, a name or an IP address.
    pub fn connect(&self, host: &str) -> Result<TlsSession, TlsError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| TlsError::Name(format!("{host:?} is no name that a certificate has")))?;
        Ok(TlsSession::client(Arc::clone(&self.0), name)?)
    }
}

fn listener_tls(settings: &TlsSettings) -> Result<ListenerTls, TlsError> {
    let provider = provider(settings)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(settings)?)?;
    let client_auth = client_auth(settings)?;
    let verifier = if client_auth == ClientAuth::None {
        None
    } else {
        let trusted = stores::trusted(settings)?.ok_or_else(|| {
            TlsError::Store("ssl.client.auth needs ssl.truststore.location".to_owned())
        })?;
        let roots = roots(trusted)?;
        let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
        if client_auth == ClientAuth::Requested {
            verifier = verifier.allow_unauthenticated();
        }
        Some(verifier.build().map_err(|error| unusable(&error))?)
    };
    let builder = match &verifier {
        Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
        None => builder.with_no_client_auth(),
    };
    let Identity { chain, key } = stores::identity(settings)?.ok_or_else(|| {
        TlsError::Store("TLS needs a key and a certificate: set ssl.keystore.location".to_owned())
    })?;
    Ok(ListenerTls { config: Arc::new(builder.with_single_cert(chain, key)?), verifier })
}

fn unusable(error: &dyn std::fmt::Display) -> TlsError {
    TlsError::Store(format!("the trusted certificates cannot be used: {error}"))
}

fn roots(certificates: Vec<CertificateDer<'static>>) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        let what = "no certificate is trusted: set ssl.truststore.location";
        return Err(TlsError::Store(what.to_owned()));
    }
    Ok(Arc::new(roots))
}

fn client_auth(settings: &TlsSettings) -> Result<ClientAuth, TlsError> {
    match stores::given(settings, "ssl.client.auth").unwrap_or("none") {
        "none" => Ok(ClientAuth::None),
        "requested" => Ok(ClientAuth::Requested),
        "required" => Ok(ClientAuth::Required),
        other => Err(TlsError::Name(format!(
            "ssl.client.auth is {other}: it is none, requested or required"
        ))),
    }
}

fn certificate_check(settings: &TlsSettings) -> Result<CertificateCheck, TlsError> {
    if stores::given(settings, "enable.ssl.certificate.verification") == Some("false") {
        return Ok(CertificateCheck::Nothing);
    }
    let name = "ssl.endpoint.identification.algorithm";
    match settings.get(name).map_or("https", |text| text.trim()).to_ascii_lowercase().as_str() {
        "https" => Ok(CertificateCheck::ChainAndName),
        "" | "none" => Ok(CertificateCheck::ChainOnly),
        other => Err(TlsError::Name(format!("{name} is {other}: it is https, or empty"))),
    }
}

fn versions(settings: &TlsSettings) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    let names = stores::list(settings, "ssl.enabled.protocols");
    if names.is_empty() {
        return Ok(vec![&TLS13, &TLS12]);
    }
    let version = |name: &String| match name.as_str() {
        "TLSv1.3" => Ok(&TLS13),
        "TLSv1.2" => Ok(&TLS12),
        _ => Err(TlsError::Name(format!(
            "ssl.enabled.protocols has {name}; TLSv1.2 and TLSv1.3 are offered"
        ))),
    };
    names.iter().map(version).collect()
}

/// The cryptography, with the cipher suites that are named.
fn provider(settings: &TlsSettings) -> Result<Arc<CryptoProvider>, TlsError> {
    let names = stores::list(settings, "ssl.cipher.suites");
    let mut provider = rustls::crypto::ring::default_provider();
    if !names.is_empty() {
        let all = std::mem::take(&mut provider.cipher_suites);
        provider.cipher_suites = names
            .iter()
            .map(|name| all.iter().find(|suite| iana_name(suite) == *name).copied())
            .collect::<Option<_>>()
            .ok_or_else(|| {
                let known: Vec<_> = all.iter().map(iana_name).collect();
                TlsError::Name(format!(
                    "ssl.cipher.suites = {} has one that is not offered; there are {}",
                    names.join(","),
                    known.join(",")
                ))
            })?;
    }
    Ok(Arc::new(provider))
}

/// `TLS_AES_256_GCM_SHA384`, which rustls calls `TLS13_AES_256_GCM_SHA384`.
fn iana_name(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replace("TLS13_", "TLS_")
}
