//! A request on its way through the scheduler, and the programs that it and others like it can be run by.

use super::desk::{Bucket, Needs};
use super::services::Services;
use plimsoll_engine::error::Error;
use plimsoll_engine::lane::Want;
use plimsoll_engine::program::Program;
use plimsoll_engine::tensor::Tensor;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The programs for requests whose shapes agree beyond the first axis.
pub(crate) struct Runs {
    /// Requests of the same number can run together; `None` runs alone.
    group: Option<u64>,
    /// How long runs of these shapes take.
    services: Arc<Services>,
    /// Each with the rows that it takes, fewest first; one at least.
    programs: SmallVec<[(usize, Arc<Program>); 1]>,
}

impl Runs {
    /// The one program that takes a request of `rows` rows as it is.
    pub(crate) fn alone(rows: usize, program: Arc<Program>, services: Arc<Services>) -> Runs {
        Runs { group: None, services, programs: SmallVec::from_buf([(rows, program)]) }
    }

    /// The programs of a group, each with the rows that it takes, fewest first.
    pub(crate) fn shared(
        group: u64,
        programs: impl IntoIterator<Item = (usize, Arc<Program>)>,
        services: Arc<Services>,
    ) -> Runs {
        Runs { group: Some(group), services, programs: programs.into_iter().collect() }
    }

    /// The smallest with room for so many rows, and its rows.
    pub(crate) fn covering(&self, rows: usize) -> Option<&(usize, Arc<Program>)> {
        self.programs.iter().find(|(room, _)| *room >= rows)
    }

    /// The one at this position.
    pub(super) fn at(&self, bucket: usize) -> Option<&(usize, Arc<Program>)> {
        self.programs.get(bucket)
    }
}

/// What a caller brings.
pub(crate) struct Asked {
    /// What was known of it before its inputs were there.
    pub(crate) look: Look,
    /// In the signature's order.
    pub(crate) inputs: Vec<Tensor>,
    /// Whatever must live as long as the inputs, such as their share of a budget.
    pub(crate) _held: Box<dyn Send>,
    /// When nobody waits for it any more.
    pub(crate) deadline: Instant,
}

/// A request that is still on its way.
pub(crate) struct Look {
    /// What it could be run by.
    pub(crate) runs: Arc<Runs>,
    /// Rows that it brings.
    pub(crate) rows: usize,
    /// The lanes that it may have.
    pub(crate) want: Want,
}

/// One admitted request.
pub(super) struct Job {
    pub(super) asked: Asked,
    pub(super) entered: Instant,
    pub(super) reply: oneshot::Sender<Result<Done, Failed>>,
}

impl Look {
    /// What it needs alone.
    pub(super) fn program(&self) -> Option<&Arc<Program>> {
        self.runs.covering(self.rows).map(|(_, program)| program)
    }
}

impl Needs for Look {
    fn want(&self) -> Want {
        self.want
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn group(&self) -> Option<u64> {
        self.runs.group
    }

    fn services(&self) -> &Arc<Services> {
        &self.runs.services
    }

    fn bucket(&self, at: usize) -> Option<Bucket> {
        let (rows, program) = self.runs.at(at)?;
        Some(Bucket { rows: *rows, bytes: program.lane_bytes() as u64 })
    }
}

impl Needs for Job {
    fn want(&self) -> Want {
        self.asked.look.want()
    }

    fn rows(&self) -> usize {
        self.asked.look.rows()
    }

    fn group(&self) -> Option<u64> {
        self.asked.look.group()
    }

    fn services(&self) -> &Arc<Services> {
        self.asked.look.services()
    }

    fn bucket(&self, at: usize) -> Option<Bucket> {
        self.asked.look.bucket(at)
    }
}

/// A finished run.
#[derive(Debug)]
pub(crate) struct Done {
    /// The outputs in the signature's order.
    pub(crate) outputs: Vec<Tensor>,
    /// Time in the queue.
    pub(crate) queued: Duration,
    /// Time of the run.
    pub(crate) computed: Duration,
    /// The rows that the run was for, where this is the one of the requests that it answers which counts it.
    pub(crate) led: Option<usize>,
}

/// Why an admitted job has no result.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Its deadline passed.
    Expired {
        /// Whether it was running by then; what had not begun was not run.
        begun: bool,
    },
    /// The run failed.
    Run(Error),
    /// The worker is gone.
    Lost,
}
