//! The arrivals of requests, written to a file that `plimsoll simulate` replays: CSV with a header.
//!
//! Nobody who brings a request waits for the disk: arrivals are noted in memory, and a thread writes them once a second.

use anyhow::Context;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The columns: milliseconds since the start, the model's name, rows, and milliseconds left until the deadline.
pub(crate) const COLUMNS: [&str; 4] = ["at_ms", "model", "rows", "timeout_ms"];

/// Arrivals that are kept between two writes; what comes beyond them is left out, and the log says so.
const MOST: usize = 1 << 16;

/// How often they are written.
const EVERY: Duration = Duration::from_secs(1);

/// Writes down what arrives.
pub(crate) struct Recorder {
    start: Instant,
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    noted: Mutex<Noted>,
    /// The end has come.
    ended: Condvar,
}

#[derive(Default)]
struct Noted {
    arrivals: Vec<Arrived>,
    left_out: u64,
    ends: bool,
}

struct Arrived {
    at: Duration,
    model: String,
    rows: usize,
    timeout: Duration,
}

impl Recorder {
    /// Begins the file anew; times are counted from now.
    ///
    /// # Errors
    /// The file cannot be written, or the thread not be started.
    pub(crate) fn start(file: &Path) -> anyhow::Result<Recorder> {
        let failed = || format!("cannot write {} (log.arrivals)", file.display());
        let mut out = BufWriter::new(File::create(file).with_context(failed)?);
        writeln!(out, "{}", COLUMNS.join(",")).and_then(|()| out.flush()).with_context(failed)?;
        let shared = Arc::new(Shared::default());
        let (noted, name) = (Arc::clone(&shared), file.display().to_string());
        let thread = std::thread::Builder::new().name("arrivals".into());
        let writer = thread.spawn(move || {
            if let Err(error) = noted.write(&mut out) {
                noted.noted().ends = true;
                tracing::error!(file = name, %error, "arrivals are not recorded any more");
            }
        })?;
        Ok(Recorder { start: Instant::now(), shared, writer: Mutex::new(Some(writer)) })
    }

    /// Notes a request that has come to the owner of a program, a model's name and version.
    pub(super) fn note(&self, owner: &str, rows: usize, timeout: Duration) {
        let model = owner.rsplit_once(':').map_or(owner, |(name, _)| name);
        let mut noted = self.shared.noted();
        if noted.ends {
            return;
        }
        if noted.arrivals.len() >= MOST {
            noted.left_out += 1;
            return;
        }
        // Under the lock, so that lines are in the order of their times.
        let at = self.start.elapsed();
        noted.arrivals.push(Arrived { at, model: model.into(), rows, timeout });
    }

    /// Writes what is noted and ends; what comes later is not recorded.
    pub(super) fn finish(&self) {
        self.shared.noted().ends = true;
        self.shared.ended.notify_all();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            // One that panicked has said so.
            let _ = writer.join();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        // What is guarded is whole between statements.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is noted, each second and at the end.
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        loop {
            let waits = self.ended.wait_timeout_while(self.noted(), EVERY, |noted| !noted.ends);
            let mut noted = waits.unwrap_or_else(PoisonError::into_inner).0;
            let (arrivals, left_out) =
                (std::mem::take(&mut noted.arrivals), std::mem::take(&mut noted.left_out));
            let ends = noted.ends;
            drop(noted);
            for Arrived { at, model, rows, timeout } in arrivals {
                let [at, timeout] = [at, timeout].map(|time| time.as_secs_f64() * 1e3);
                writeln!(out, "{at:.3},{model},{rows},{timeout:.3}")?;
            }
            out.flush()?;
            if left_out > 0 {
                tracing::warn!(left_out, "more requests came within a second than are recorded");
            }
            if ends {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use temp_dir::TempDir;

    #[test]
    fn what_is_noted_is_in_the_file_once_the_recorder_is_gone() {
        let folder = TempDir::new().unwrap();
        let file = folder.child("arrivals.csv");
        let recorder = Recorder::start(&file).unwrap();
        recorder.note("digits:2", 1, Duration::from_millis(1500));
        recorder.note("a.b-c:1", 8, Duration::ZERO);
        drop(recorder);
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "at_ms,model,rows,timeout_ms");
        let rests: Vec<&str> = lines[1..].iter().map(|line| line.split_once(',').unwrap().1).collect();
        assert_eq!(rests, ["digits,1,1500.000", "a.b-c,8,0.000"]);
    }

    #[test]
    fn more_than_fits_between_two_writes_is_left_out_and_counted() {
        let recorder = Recorder { start: Instant::now(), shared: Arc::default(), writer: Mutex::default() };
        for _ in 0..MOST + 2 {
            recorder.note("digits:1", 1, Duration::ZERO);
        }
        let noted = recorder.shared.noted();
        assert_eq!((noted.arrivals.len(), noted.left_out), (MOST, 2));
    }
}
