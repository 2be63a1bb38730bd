//! A proxy before a broker. It keeps the requests, and makes the broker look older than it is.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use krust::protocol::api_versions::ApiVersionsResponse;
use krust::protocol::header::RequestHeader;
use krust::wire::{Reader, Writer};

const API_VERSIONS: i16 = 18;

/// A request: its API, its version and its body.
#[derive(Clone, Debug)]
pub struct SeenRequest {
    pub key: i16,
    pub version: i16,
    pub body: Vec<u8>,
}

/// See the module.
pub struct Proxy {
    pub port: u16,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
}

impl Proxy {
    /// Listens before the broker at `port`. `last`: the newest version of some APIs.
    pub fn start(port: u16, last: HashMap<i16, i16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Vec<SeenRequest>>>::default();
        let (keep, last) = (Arc::clone(&seen), Arc::new(last));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (keep, last) = (Arc::clone(&keep), Arc::clone(&last));
                // It ends when one of its ends is gone.
                std::thread::spawn(move || relay(stream?, port, (&keep, &last)));
            }
        });
        Self { port: own, seen }
    }

    /// The requests of an API, from the first on.
    pub fn seen(&self, key: i16) -> Vec<SeenRequest> {
        self.seen.lock().unwrap().iter().filter(|it| it.key == key).cloned().collect()
    }
}

fn relay(
    mut client: TcpStream,
    port: u16,
    (seen, last): (&Mutex<Vec<SeenRequest>>, &HashMap<i16, i16>),
) -> io::Result<()> {
    let mut broker = TcpStream::connect(("127.0.0.1", port))?;
    loop {
        let request = frame(&mut client)?;
        let mut reader = Reader::new(&request);
        let header = RequestHeader::decode(&mut reader).unwrap();
        let (key, version) = (header.api_key, header.api_version);
        let body = reader.rest().to_vec();
        seen.lock().unwrap().push(SeenRequest { key, version, body });
        send(&mut broker, &request)?;
        let mut response = frame(&mut broker)?;
        if key == API_VERSIONS {
            response = older(&response, version, last);
        }
        send(&mut client, &response)?;
    }
}

/// The same answer, with no API newer than `last` says.
fn older(response: &[u8], version: i16, last: &HashMap<i16, i16>) -> Vec<u8> {
    let (correlation_id, body) = response.split_at(4);
    let mut answer = ApiVersionsResponse::decode(&mut Reader::new(body), version).unwrap();
    for api in &mut answer.api_keys {
        let newest = last.get(&api.api_key).copied().unwrap_or(i16::MAX);
        api.max_version = api.max_version.min(newest);
    }
    let mut writer = Writer::new();
    writer.buf.extend_from_slice(correlation_id);
    answer.encode(&mut writer, version);
    writer.buf
}

fn frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix)?;
    let mut body = vec![0; u32::from_be_bytes(prefix) as usize];
    stream.read_exact(&mut body)?;
    Ok(body)
}

fn send(stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    let mut bytes = (body.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(body);
    stream.write_all(&bytes)
}
