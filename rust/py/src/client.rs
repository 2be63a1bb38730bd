//! `_krust.Client`: any API of Kafka's by name, and offsets by time, over one connection to each
//! broker.
//!
//! The three client classes share [`GuardedCore`]. It locks the core's object, refuses calls in a
//! forked child and after `close`, and converts errors and signals to exceptions.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::convert::{from_python, to_python};
use super::errors::{Signals, of_client};
use super::sasl;
use krust::client::admin::{NamedRequest, OffsetQuery};
use krust::client::{self, Address, ClientOptions, Cluster, Error, Target};
use krust::protocol;
use krust::transport::ClientSecurity;
use krust::transport::sasl::{Mechanism, SaslLogin};
use krust::transport::tls::{self, ClientTls, TlsSettings};

/// A core object that Python holds, guarded against other threads, forks and signals.
pub(super) struct GuardedCore<T> {
    /// `None`: it was closed.
    core: Mutex<Option<T>>,
    signals: Arc<Signals>,
    pid: u32,
}

impl<T: Send> GuardedCore<T> {
    /// Makes the core object for a cluster. `make` takes its own properties; an unknown property is
    /// an error.
    pub(super) fn new(
        py: Python<'_>,
        (bootstrap, options): (&str, Option<&Bound<'_, PyDict>>),
        make: impl FnOnce(Cluster, &mut ClientProperties<'_>) -> client::Result<T>,
    ) -> PyResult<Self> {
        let signals = Arc::new(Signals::default());
        let mut properties = ClientProperties::new(options)?;
        let core = cluster_options(bootstrap, &mut properties, &signals)
            .and_then(|options| make(Cluster::new(options), &mut properties))
            .and_then(|core| properties.finish().map(|()| core))
            .map_err(|error| of_client(py, &error))?;
        Ok(Self { core: Mutex::new(Some(core)), signals, pid: std::process::id() })
    }

    /// Runs `work` on the core object, detached from the interpreter.
    pub(super) fn run<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut T) -> client::Result<R> + Send,
    ) -> PyResult<R> {
        self.guard(py)?;
        let closed = || Error::Invalid("this client is closed".to_owned());
        let done = py.detach(|| self.core.lock().as_mut().ok_or_else(closed).and_then(work));
        self.signals.report_reachability(py);
        done.map_err(|error| self.signals.exception(py, &error))
    }

    /// Runs `last` and drops the core object, detached. Later calls are refused.
    pub(super) fn close(&self, py: Python<'_>, last: impl FnOnce(&mut T) + Send) -> PyResult<()> {
        self.guard(py)?;
        py.detach(|| self.core.lock().take().as_mut().map(last));
        Ok(())
    }

    fn guard(&self, py: Python<'_>) -> PyResult<()> {
        if std::process::id() == self.pid { Ok(()) } else { Err(forked_error(py)) }
    }
}

/// Key, name if known, oldest and newest version of an API that a broker serves.
type BrokerApiRow = (i16, Option<&'static str>, i16, i16);

/// Client properties by Kafka's names, taken one by one.
pub(super) struct ClientProperties<'py> {
    unread: Option<Bound<'py, PyDict>>,
}

impl<'py> ClientProperties<'py> {
    pub(super) fn new(options: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        Ok(Self { unread: options.map(Bound::copy).transpose()? })
    }

    /// Takes a property's text.
    pub(super) fn take(&mut self, name: &str) -> client::Result<Option<String>> {
        let bad = |error: PyErr| Error::Invalid(format!("{name}: {error}"));
        let Some(value) = self.take_object(name)? else { return Ok(None) };
        value.str().and_then(|text| text.extract()).map(Some).map_err(bad)
    }

    /// Takes a property as it is.
    pub(super) fn take_object(&mut self, name: &str) -> client::Result<Option<Bound<'py, PyAny>>> {
        let Some(unread) = &self.unread else { return Ok(None) };
        let bad = |error: PyErr| Error::Invalid(format!("{name}: {error}"));
        let Some(value) = unread.get_item(name).map_err(bad)? else { return Ok(None) };
        unread.del_item(name).map_err(bad)?;
        Ok(Some(value))
    }

    /// Takes a property and parses it.
    pub(super) fn parse<V: std::str::FromStr>(&mut self, name: &str) -> client::Result<Option<V>> {
        let bad = |text: &String| Error::Invalid(format!("{name}: {text:?} is no valid value"));
        self.take(name)?.map(|text| text.parse().map_err(|_| bad(&text))).transpose()
    }

    /// Takes a property in milliseconds.
    pub(super) fn duration(&mut self, name: &str) -> client::Result<Option<Duration>> {
        Ok(self.parse(name)?.map(Duration::from_millis))
    }

    /// Takes a boolean: `true` or `false`.
    pub(super) fn boolean(&mut self, name: &str) -> client::Result<Option<bool>> {
        let text = self.take(name)?.map(|text| text.to_ascii_lowercase());
        let bad =
            |text: &str| Error::Invalid(format!("{name}: {text:?} is neither true nor false"));
        text.map(|text| text.parse().map_err(|_| bad(&text))).transpose()
    }

    /// Takes `isolation.level`: whether it is `read_committed`.
    pub(super) fn read_committed(&mut self) -> client::Result<bool> {
        let text = self.take("isolation.level")?.map(|text| text.to_ascii_lowercase());
        match text.as_deref() {
            None | Some("read_uncommitted") => Ok(false),
            Some("read_committed") => Ok(true),
            Some(other) => Err(Error::Invalid(format!(
                "isolation.level must be read_uncommitted or read_committed, not {other:?}"
            ))),
        }
    }

    /// An unknown property is an error.
    pub(super) fn finish(&self) -> client::Result<()> {
        let Some(unread) = &self.unread else { return Ok(()) };
        match unread.keys().iter().next() {
            None => Ok(()),
            Some(name) => Err(Error::Invalid(format!("this client has no property {name}"))),
        }
    }
}

/// Takes the properties of every connection out of `properties`.
pub(super) fn cluster_options(
    bootstrap: &str,
    properties: &mut ClientProperties<'_>,
    signals: &Arc<Signals>,
) -> client::Result<ClientOptions> {
    let mut options = ClientOptions::new(Address::parse_list(bootstrap)?);
    let signals: Arc<Signals> = Arc::clone(signals);
    options.reachability = Arc::clone(&signals.reachability);
    if let Some(reporter) = properties.parse("krust.report.reachability")? {
        signals.reporter.get_or_init(|| reporter);
    }
    options.interrupt = signals;
    if let Some(client_id) = properties.take("client.id")? {
        options.client_id = client_id;
    }
    if let Some(time) = properties.duration("request.timeout.ms")? {
        options.request_timeout = time;
    }
    if let Some(time) = properties.duration("socket.connection.setup.timeout.ms")? {
        options.connect_timeout = time;
    }
    if let Some(time) = properties.duration("retry.backoff.ms")? {
        options.retry_backoff = time;
    }
    options.security = client_security(properties)?;
    Ok(options)
}

const OAUTHBEARER: &str = "OAUTHBEARER";
const TOKEN_NEEDS_SCRAM: &str =
    "a login by delegation token needs sasl.mechanism=SCRAM-SHA-256 or SCRAM-SHA-512";

/// Takes the properties of TLS and SASL.
fn client_security(properties: &mut ClientProperties<'_>) -> client::Result<ClientSecurity> {
    let mut settings = TlsSettings::new();
    for name in tls::KEYS {
        if let Some(text) = properties.take(name)? {
            settings.insert(name.to_owned(), text);
        }
    }
    let protocol = properties.take("security.protocol")?.map(|text| text.to_ascii_uppercase());
    let protocol = protocol.as_deref().unwrap_or("PLAINTEXT");
    let mechanism = properties.take("sasl.mechanism")?;
    let (user, password) = (properties.take("sasl.username")?, properties.take("sasl.password")?);
    let (is_encrypted, has_login) = match protocol {
        "PLAINTEXT" => (false, false),
        "SSL" => (true, false),
        "SASL_PLAINTEXT" => (false, true),
        "SASL_SSL" => (true, true),
        other => {
            let known = "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL";
            return Err(Error::Invalid(format!("security.protocol must be {known}, not {other}")));
        }
    };
    let tls = is_encrypted.then(|| ClientTls::new(&settings)).transpose();
    let tls = tls.map_err(|error| Error::Invalid(format!("security.protocol={protocol}: {error}")));
    let tokens = properties.take_object("sasl.oauthbearer.token")?;
    let is_delegated = properties.boolean("krust.sasl.tokenauth")?.unwrap_or(false);
    let login = match (has_login, mechanism.as_deref(), tokens) {
        (false, ..) => None,
        (true, Some(OAUTHBEARER), Some(tokens)) => {
            Some(SaslLogin::by_tokens(sasl::token_source(tokens)?))
        }
        (true, ..) => {
            let login = client_login(mechanism, user, password)?;
            if is_delegated && !matches!(login.mechanism, Mechanism::Scram(_)) {
                return Err(Error::Invalid(TOKEN_NEEDS_SCRAM.to_owned()));
            }
            Some(SaslLogin { is_delegated, ..login })
        }
    };
    Ok(ClientSecurity { tls: tls?, login })
}

/// How a client logs in.
pub(super) fn client_login(
    mechanism: Option<String>,
    user: Option<String>,
    password: Option<String>,
) -> client::Result<SaslLogin> {
    let name = mechanism.unwrap_or_else(|| "GSSAPI".to_owned());
    let mechanism = Mechanism::named(&name).ok_or_else(|| {
        let known = Mechanism::ALL.map(Mechanism::name).join(", ");
        Error::Invalid(format!("sasl.mechanism must be one of {known}, not {name}"))
    })?;
    let (Some(user), Some(password)) = (user, password) else {
        let needed = match mechanism {
            Mechanism::OauthBearer => sasl::TOKEN_NEEDED,
            _ => "a login needs sasl.username and sasl.password, or sasl.jaas.config",
        };
        return Err(Error::Invalid(needed.to_owned()));
    };
    Ok(SaslLogin::by_password(mechanism, user, password))
}

/// The error of a client that is used in a forked child.
pub(super) fn forked_error(py: Python<'_>) -> PyErr {
    let raise = || -> PyResult<PyErr> {
        let class = py.import("krust.errors")?.getattr("ForkedError")?;
        let text = "this client was made in the parent process; make one in this process";
        Ok(PyErr::from_value(class.call1((text,))?))
    };
    raise().unwrap_or_else(|failed| failed)
}

/// See `_krust.pyi`.
#[pyclass(frozen, name = "Client", module = "krust._krust")]
pub(super) struct PyClient {
    guarded: GuardedCore<Cluster>,
}

#[pymethods]
impl PyClient {
    #[new]
    #[pyo3(signature = (bootstrap, options=None))]
    fn new(py: Python<'_>, bootstrap: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let guarded = GuardedCore::new(py, (bootstrap, options), |cluster, _| Ok(cluster))?;
        Ok(Self { guarded })
    }

    #[pyo3(signature = (api, body, version=None, *, broker=None))]
    fn request<'py>(
        &self,
        py: Python<'py>,
        api: &str,
        body: &Bound<'py, PyDict>,
        version: Option<i16>,
        broker: Option<i32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let body = from_python(body)?;
        let target = broker.map(Target::Broker);
        let request = NamedRequest { api, version, target, body: &body };
        let answer = self.guarded.run(py, |cluster| {
            let wait = cluster.wait();
            cluster.request(&request, &wait)
        })?;
        to_python(py, &answer)
    }

    #[pyo3(signature = (broker=None))]
    fn versions(&self, py: Python<'_>, broker: Option<i32>) -> PyResult<Vec<BrokerApiRow>> {
        self.guarded.run(py, |cluster| {
            let wait = cluster.wait();
            let target = broker.map_or(Target::Any, Target::Broker);
            let connection = cluster.connection(target, &wait)?;
            let ranges = connection.versions().ranges().iter();
            let named = |(key, first, last): &(i16, i16, i16)| {
                (*key, protocol::api(*key).map(|spec| spec.name), *first, *last)
            };
            Ok(ranges.map(named).collect())
        })
    }

    fn end(&self) {
        self.guarded.signals.end();
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.guarded.close(py, Cluster::close)
    }

    #[pyo3(signature = (moments, *, read_committed=false))]
    fn list_offsets<'py>(
        &self,
        py: Python<'py>,
        moments: Vec<(String, i32, i64)>,
        read_committed: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let moments: Vec<_> = moments
            .into_iter()
            .map(|(topic, partition, timestamp)| OffsetQuery { topic, partition, timestamp })
            .collect();
        let found = self.guarded.run(py, |cluster| {
            let wait = cluster.wait();
            cluster.list_offsets(&moments, read_committed, &wait)
        })?;
        let list = PyList::empty(py);
        for found in found {
            if let Some(error) = &found.error {
                return Err(of_client(py, error));
            }
            let OffsetQuery { topic, partition, timestamp: requested } = found.query;
            list.append((topic, partition, requested, found.offset, found.timestamp))?;
        }
        Ok(list)
    }
}

/// Name of an error code, and whether the same request may succeed later. See `_krust.pyi`.
#[pyfunction]
pub(super) fn error_info(code: i16) -> (&'static str, bool) {
    let error = protocol::ErrorCode::from(code);
    (error.name(), error.is_retriable())
}
