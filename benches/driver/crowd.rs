//! Many connections served by one thread: whoever can be read is read, and what is due is sent.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use crate::link::{Link, Run};
use crate::usage::Usage;

/// A server that does not answer for so long will not.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Crowd {
    pub links: Vec<Link>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Crowd {
    pub fn connect(address: &str, count: usize) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
        let links: Vec<Link> = (0..count).map(|_| Link::connect(address)).collect();
        for (index, link) in links.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, link.stream(), data, epoll::EventFlags::IN).expect("epoll");
        }
        Self { links, epoll, events: Vec::with_capacity(256) }
    }

    /// Who can be read, after at most `wait`.
    pub fn ready(&mut self, wait: Duration) -> Vec<usize> {
        let wait = Timespec::try_from(wait).expect("a short time");
        self.events.clear();
        epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&wait)).expect("epoll");
        self.events.iter().map(|event| event.data.u64() as usize).collect()
    }

    /// Reads until `count` replies have come, and hands each over with the link it came by.
    pub fn gather(&mut self, count: usize, mut each: impl FnMut(&mut Link, usize, &[u8])) {
        let (mut run, mut came) = (Run::default(), 0);
        let mut replies = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while came < count {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{came} of {count} replies came");
            for index in self.ready(left) {
                let link = &mut self.links[index];
                link.read(&mut run, |reply| replies.push(reply.to_vec()));
                for reply in replies.drain(..) {
                    came += 1;
                    each(link, index, &reply);
                }
            }
        }
    }

    /// Keeps `window` requests in flight on each connection until `requests` are answered; each
    /// connection cycles through its own frames. `check` sees every reply.
    pub fn run(
        &mut self,
        frames: &[Vec<Vec<u8>>],
        (requests, window): (usize, usize),
        usage: &Usage,
        check: impl Fn(&[u8]),
    ) -> Run {
        let mut run = Run { latencies: Vec::with_capacity(requests), ..Run::default() };
        let mut next: Vec<_> = frames.iter().map(|of_link| of_link.iter().cycle()).collect();
        let mut started = vec![VecDeque::with_capacity(window); frames.len()];
        let (mut sent, mut burst) = (0, Vec::new());
        let before = usage.cpu_s();
        let start = Instant::now();
        let mut due: Vec<(usize, usize)> = (0..frames.len()).map(|link| (link, window)).collect();
        loop {
            for (link, count) in due.drain(..) {
                let count = count.min(requests - sent);
                for frame in next[link].by_ref().take(count) {
                    burst.extend_from_slice(frame);
                }
                let now = Instant::now();
                started[link].extend(std::iter::repeat_n(now, count));
                run.sent += burst.len();
                sent += count;
                if count > 0 {
                    self.links[link].send(&burst);
                }
                burst.clear();
            }
            if run.requests == requests {
                break;
            }
            let ready = self.ready(PATIENCE);
            assert!(!ready.is_empty(), "no reply in {PATIENCE:?}");
            for link in ready {
                let done = self.links[link].read(&mut run, &check);
                let now = Instant::now();
                let times = started[link].drain(..done).map(|at| (now - at).as_nanos() as u64);
                run.latencies.extend(times);
                run.requests += done;
                due.push((link, done));
            }
        }
        run.seconds = start.elapsed().as_secs_f64();
        run.cpu_s = before.and_then(|before| usage.cpu_s().map(|after| after - before));
        run
    }
}
