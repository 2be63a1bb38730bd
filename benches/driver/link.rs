//! A connection that costs the machine as little as a client can: prebuilt frames out, replies
//! counted by their length prefix, long ones dropped in the kernel without being copied.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv};
use rustls::ClientConfig;

use crate::tls::{self, TlsStream};
use crate::usage::Usage;

const READ: usize = 256 << 10;
/// Replies up to this are kept, so that the last one can be looked at.
const KEEP: usize = 64 << 10;
/// Bodies with more than this to come are dropped in the kernel.
const DROP: usize = 64 << 10;

/// A server that does not answer for so long will not.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Link {
    stream: Stream,
    buf: Vec<u8>,
    /// The bytes of the reply at hand that came so far, as far as they are kept.
    head: Vec<u8>,
    /// Bytes of the reply at hand still to come; `None` before its length is known.
    left: Option<usize>,
    keeps_all: bool,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// What to send, how often, and how many at a time.
pub struct Load<'a> {
    pub frames: &'a [Vec<u8>],
    pub requests: usize,
    pub window: usize,
    /// From one request to the next, at least.
    pub gap: Option<Duration>,
}

/// The result of a run.
#[derive(Default)]
pub struct Run {
    pub requests: usize,
    pub sent: usize,
    pub received: usize,
    pub seconds: f64,
    pub cpu_s: Option<f64>,
    /// Nanoseconds from a request's send to its reply, in order.
    pub latencies: Vec<u64>,
    /// The last reply without its length, if it was short.
    pub last: Vec<u8>,
    /// Further results of a mode.
    pub more: Vec<(&'static str, f64)>,
}

impl Link {
    pub fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("connect to --bootstrap");
        stream.set_nodelay(true).expect("nodelay");
        Self::of(Stream::Plain(stream))
    }

    pub fn secured(address: &str, config: &Arc<ClientConfig>) -> Self {
        Self::of(Stream::Tls(Box::new(tls::connect(address, config))))
    }

    fn of(stream: Stream) -> Self {
        stream.socket().set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self { stream, buf: vec![0; READ], head: Vec::new(), left: None, keeps_all: false }
    }

    /// Long replies are kept too from now on.
    pub fn keep_all(&mut self) {
        self.keeps_all = true;
    }

    pub fn send(&mut self, frame: &[u8]) {
        self.stream.write(frame);
    }

    /// Waits for one reply and returns it without its length.
    pub fn reply(&mut self) -> Vec<u8> {
        assert!(self.left.is_none() && self.head.is_empty(), "a reply is half read");
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix);
        let mut body = vec![0; u32::from_be_bytes(prefix) as usize];
        self.stream.read_exact(&mut body);
        body
    }

    pub fn call(&mut self, frame: &[u8]) -> Vec<u8> {
        self.send(frame);
        self.reply()
    }

    /// Keeps `load.window` requests in flight until `load.requests` are answered.
    pub fn run(&mut self, load: &Load<'_>, usage: &Usage) -> Run {
        let mut run = Run { latencies: Vec::with_capacity(load.requests), ..Run::default() };
        let mut started = VecDeque::with_capacity(load.window);
        let mut next = load.frames.iter().cycle();
        let mut sent = 0;
        let mut burst = Vec::new();
        let before = usage.cpu_s();
        let start = Instant::now();
        while run.requests < load.requests {
            let mut due = (load.requests - sent).min(load.window - started.len());
            if let Some(gap) = load.gap {
                due = due.min(1);
                let at = start + gap * sent as u32;
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
            }
            let now = Instant::now();
            for _ in 0..due {
                let frame = next.next().expect("a frame");
                run.sent += frame.len();
                started.push_back(now);
                if due == 1 || frame.len() > KEEP {
                    self.flush(&mut burst);
                    self.send(frame);
                } else {
                    burst.extend_from_slice(frame);
                }
            }
            sent += due;
            self.flush(&mut burst);
            let done = self.read(&mut run, |_| ());
            let now = Instant::now();
            for at in started.drain(..done) {
                run.latencies.push((now - at).as_nanos() as u64);
            }
            run.requests += done;
        }
        run.seconds = start.elapsed().as_secs_f64();
        run.cpu_s = before.and_then(|before| usage.cpu_s().map(|after| after - before));
        run
    }

    fn flush(&mut self, burst: &mut Vec<u8>) {
        if !burst.is_empty() {
            self.stream.write(burst);
            burst.clear();
        }
    }

    /// What a system call can wait for.
    pub fn stream(&self) -> &TcpStream {
        self.stream.socket()
    }

    /// Reads once and returns how many replies ended with that; `each` sees those that are kept.
    pub fn read(&mut self, run: &mut Run, mut each: impl FnMut(&[u8])) -> usize {
        if let Some(left) = self.left
            && left > DROP
            && !self.keeps_all
            && let Stream::Plain(stream) = &self.stream
        {
            let wanted = left.min(1 << 20);
            self.buf.resize(self.buf.len().max(wanted), 0);
            let (_, count) =
                recv(stream, &mut self.buf[..wanted], RecvFlags::TRUNC).expect("a reply");
            assert!(count > 0, "the server closed the connection");
            run.received += count;
            self.left = Some(left - count);
            return if left == count { self.finish(run) } else { 0 };
        }
        let count = self.stream.read(&mut self.buf[..READ]);
        assert!(count > 0, "the server closed the connection");
        run.received += count;
        let mut done = 0;
        let mut at = 0;
        while at < count {
            let left = match self.left {
                Some(left) => left,
                None => {
                    let wanted = (4 - self.head.len()).min(count - at);
                    self.head.extend_from_slice(&self.buf[at..at + wanted]);
                    at += wanted;
                    let Ok(prefix) = <[u8; 4]>::try_from(self.head.as_slice()) else { break };
                    self.head.clear();
                    u32::from_be_bytes(prefix) as usize
                }
            };
            let part = left.min(count - at);
            if self.keeps_all || self.head.len() + part <= KEEP {
                self.head.extend_from_slice(&self.buf[at..at + part]);
            }
            at += part;
            self.left = Some(left - part);
            if left == part {
                done += self.finish(run);
                each(&run.last);
            }
        }
        done
    }

    fn finish(&mut self, run: &mut Run) -> usize {
        std::mem::swap(&mut run.last, &mut self.head);
        self.head.clear();
        self.left = None;
        1
    }
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref(),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(stream) => stream.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
        .expect("send");
    }

    fn read(&mut self, to: &mut [u8]) -> usize {
        match self {
            Self::Plain(stream) => stream.read(to),
            Self::Tls(stream) => stream.read(to),
        }
        .expect("a reply")
    }

    fn read_exact(&mut self, to: &mut [u8]) {
        match self {
            Self::Plain(stream) => stream.read_exact(to),
            Self::Tls(stream) => stream.read_exact(to),
        }
        .expect("a whole reply");
    }
}
