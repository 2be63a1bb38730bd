//! Files and texts with keys and certificates: PEM, PKCS#12 and JKS, whose digest only a store's
//! password checks. No bytes may panic; a name in a certificate is text or an error.

#![no_main]

use std::io::{Seek, SeekFrom, Write};
use std::sync::{LazyLock, Mutex};

use krust::transport::tls::{ClientTls, ServerTls, TlsSettings, subject};
use libfuzzer_sys::fuzz_target;
use tempfile::NamedTempFile;

/// Stores are read from a file, which is written anew each time.
static STORE: LazyLock<Mutex<NamedTempFile>> =
    LazyLock::new(|| Mutex::new(NamedTempFile::new().expect("a temporary file")));

fn settings(pairs: &[(&str, &str)]) -> TlsSettings {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fuzz_target!(|bytes: &[u8]| {
    let _ = subject(bytes);
    let mut store = STORE.lock().expect("no panic before");
    let file = store.as_file_mut();
    file.set_len(0).expect("an empty file");
    file.seek(SeekFrom::Start(0)).expect("its beginning");
    file.write_all(bytes).expect("a written file");
    let path = store.path().to_str().expect("a name that is text");
    let _ = ServerTls::new(&settings(&[
        ("ssl.keystore.location", path),
        ("ssl.keystore.password", "password"),
        ("ssl.key.password", "password"),
    ]));
    let _ = ServerTls::new(&settings(&[
        ("ssl.keystore.location", path),
        ("ssl.key.password", "password"),
    ]));
    let _ = ClientTls::new(&settings(&[
        ("ssl.truststore.location", path),
        ("ssl.truststore.password", "password"),
    ]));
    let _ = ClientTls::new(&settings(&[("ssl.truststore.location", path)]));
    let text = String::from_utf8_lossy(bytes);
    let _ = ServerTls::new(&settings(&[
        ("ssl.keystore.key", &text),
        ("ssl.keystore.certificate.chain", &text),
        ("ssl.key.password", "password"),
    ]));
});
