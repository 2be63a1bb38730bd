//! A proxy before a broker. It notes the requests, holds Produce requests back, assigns producer
//! ids in the place of the policy, and makes the broker look older than it is.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use krust::protocol::api_versions::ApiVersionsResponse;
use krust::protocol::header::{RequestHeader, ResponseHeader};
use krust::protocol::init_producer_id::InitProducerIdResponse;
use krust::wire::{Reader, Writer};
use parking_lot::{Condvar, Mutex};

pub const PRODUCE: i16 = 0;
const API_VERSIONS: i16 = 18;
const INIT_PRODUCER_ID: i16 = 22;

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
    state: Arc<State>,
}

struct State {
    /// The broker.
    port: u16,
    /// The newest version of some APIs.
    last: HashMap<i16, i16>,
    seen: Mutex<Vec<SeenRequest>>,
    /// How many Produce requests pass at once.
    passes: Mutex<usize>,
    released: Condvar,
}

impl Proxy {
    /// Listens before the broker at `port`. `last`: the newest version of some APIs.
    pub fn start(port: u16, last: HashMap<i16, i16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let (seen, passes, released) = (Mutex::default(), Mutex::new(usize::MAX), Condvar::new());
        let state = Arc::new(State { port, last, seen, passes, released });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&shared);
                // It ends when one of its ends is gone.
                std::thread::spawn(move || relay(stream?, &state));
            }
        });
        Self { port: own, state }
    }

    /// Lets the first `count` Produce requests pass, and holds back those after them.
    pub fn pass(&self, count: usize) {
        *self.state.passes.lock() = count;
        self.state.released.notify_all();
    }

    /// The requests of an API, from the first on.
    pub fn seen(&self, key: i16) -> Vec<SeenRequest> {
        self.state.seen.lock().iter().filter(|it| it.key == key).cloned().collect()
    }
}

impl State {
    /// Notes a request, and returns how many of its API there were, with it.
    fn note(&self, request: SeenRequest) -> usize {
        let mut seen = self.seen.lock();
        let key = request.key;
        seen.push(request);
        seen.iter().filter(|it| it.key == key).count()
    }
}

fn relay(mut client: TcpStream, state: &State) -> io::Result<()> {
    let mut broker = TcpStream::connect(("127.0.0.1", state.port))?;
    loop {
        let request = frame(&mut client)?;
        let mut reader = Reader::new(&request);
        let RequestHeader { api_key: key, api_version: version, correlation_id, .. } =
            RequestHeader::decode(&mut reader).unwrap();
        let body = reader.rest().to_vec();
        let number = state.note(SeenRequest { key, version, body });
        if key == INIT_PRODUCER_ID {
            let mut writer = Writer::new();
            ResponseHeader { correlation_id }.encode(&mut writer, key, version);
            let producer_id = i64::try_from(number).unwrap();
            let response = InitProducerIdResponse { producer_id, ..Default::default() };
            response.encode(&mut writer, version);
            send(&mut client, &writer.buf)?;
            continue;
        }
        if key == PRODUCE {
            state.released.wait_while(&mut state.passes.lock(), |passes| number > *passes);
        }
        send(&mut broker, &request)?;
        let mut response = frame(&mut broker)?;
        if key == API_VERSIONS {
            response = older(&response, version, &state.last);
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
