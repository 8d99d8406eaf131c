//! The memory under the ceiling: taken once at start, divided into weights, lanes and reserve, and handed out.
//!
//! Tools that run one model without a ceiling use an arena of the heap, which refuses nothing.

use crate::device::{self, Device, Memory, Opened, Refused, Room, Workspace};
use crate::error::{Error, size};
use crate::lane::{Counters, Pool};
use crate::slab::{
    AfterStart, Agreement, Bound, DoesNotFit, Event, Fit, Fixed, Kind, LaneSizes, LanesDoNotFit, Layout,
    Ledger, Move, Phases, Remedy, Reservation, Slab, Snapshot, Terms, What,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The lines to draw, and the lanes to make.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// What computes.
    pub device: Opened,
    /// The lines of the ledger; `slab` is computed and may be left 0.
    pub fixed: Fixed,
    /// Bytes that weights can never take.
    pub reserve: u64,
    /// Lanes that always exist.
    pub lanes: usize,
    /// Bytes of each lane's workspace; where `None`, an eighth of the slab over all lanes together.
    pub workspace: Option<u64>,
    /// Threads inside an op.
    pub threads: usize,
}

impl Lines {
    /// How the slab will be divided; takes no memory.
    ///
    /// # Errors
    /// The lines leave no room for the slab, or the slab none for the lanes and the reserve.
    pub fn layout(&self) -> Result<Layout, NoArena> {
        let alignment = self.device.device().alignment();
        let bytes = self.fixed.for_slab() / alignment * alignment;
        if bytes == 0 {
            return Err(NoArena::NothingLeft(self.fixed));
        }
        let share = bytes / 8 / self.lanes.max(1) as u64;
        let sizes = LaneSizes { steady: self.lanes, workspace_bytes: self.workspace.unwrap_or(share) };
        Ok(Layout::new(&[bytes], sizes, self.reserve, alignment)?)
    }
}

/// Why an arena cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoArena {
    /// The other lines leave nothing.
    #[error(
        "nothing is left for the slab under the ceiling of {}: driver {}, process {}, request bodies {}, headroom {}; \
         raise memory.ceiling, or lower server.body_budget or memory.headroom",
        size(.0.ceiling), size(.0.driver), size(.0.process), size(.0.bodies), size(.0.headroom)
    )]
    NothingLeft(Fixed),
    /// Lanes and reserve do not fit.
    #[error(transparent)]
    Lanes(#[from] LanesDoNotFit),
    /// The system does not give the slab.
    #[error("the system does not give the slab of {}: {source}", size(*.bytes))]
    Refused {
        /// Bytes asked for.
        bytes: u64,
        /// The system's words.
        source: std::io::Error,
    },
    /// The start was over.
    #[error(transparent)]
    Late(#[from] AfterStart),
    /// The lanes' threads cannot be started.
    #[error(transparent)]
    Threads(Error),
}

/// Who can be asked to let models go: returns whether the owner is gone from its side.
pub type Evict = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// The memory that models live in.
pub struct Arena {
    device: Arc<dyn Device>,
    ledger: Arc<Ledger>,
    backing: Backing,
    /// Counts runs, as a clock for "least recently used".
    uses: AtomicU64,
    evict: Mutex<Option<Evict>>,
    phases: Mutex<Phases>,
    /// Held while bytes are granted to an owner with a cap.
    granting: Mutex<()>,
    now_ms: fn() -> u64,
}

/// Blocks of memory for weights and workspaces that the process has allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// All of them.
    pub total: u64,
    /// Those after [`Arena::ready`]; each is a fault.
    pub after_ready: u64,
}

enum Backing {
    Heap,
    Slab { slab: Arc<Slab>, memory: Arc<dyn Memory>, lanes: Pool<Workspace> },
}

impl Arena {
    /// Takes the slab and makes the lanes. `now_ms` dates the events of memory.
    ///
    /// # Errors
    /// The lines leave no room, or the system does not give the memory; the figures are told.
    pub fn take(lines: &Lines, now_ms: fn() -> u64) -> Result<Arc<Arena>, NoArena> {
        let device = lines.device.device();
        let layout = lines.layout()?;
        let bytes = layout.slab_bytes();
        let phases = Phases::default();
        let take = || device.memory(bytes).map_err(|source| NoArena::Refused { bytes, source });
        let memory = phases.allocate(bytes, take)?;
        let lanes = device.lanes(&memory, layout.clone(), lines.threads);
        let [steady, burst] = lanes.map_err(NoArena::Threads)?;
        let lanes = Pool::new(steady, burst);
        let slab = Slab::new(layout, lines.fixed.ceiling);
        let ledger = Ledger::new(Fixed { slab: bytes, ..lines.fixed });
        Ok(Arc::new(Arena::new(device, ledger, Backing::Slab { slab, memory, lanes }, phases, now_ms)))
    }

    /// An arena of the heap, which refuses nothing.
    pub fn unlimited() -> Arc<Arena> {
        Arena::unlimited_on(&Opened::default())
    }

    /// An arena of a device's memory as far as that goes, which refuses nothing before.
    pub fn unlimited_on(device: &Opened) -> Arc<Arena> {
        let device = device.device();
        Arc::new(Arena::new(device, Ledger::unlimited(), Backing::Heap, Phases::default(), || 0))
    }

    fn new(
        device: Arc<dyn Device>,
        ledger: Arc<Ledger>,
        backing: Backing,
        phases: Phases,
        now_ms: fn() -> u64,
    ) -> Arena {
        let (uses, evict, phases) = (AtomicU64::new(0), Mutex::default(), Mutex::new(phases));
        Arena { device, ledger, backing, uses, evict, phases, granting: Mutex::default(), now_ms }
    }

    /// The start is over: from now on no device memory is allocated.
    pub fn ready(&self) {
        lock(&self.phases).ready(device::allocations());
    }

    /// What has been allocated on the device, and how much of that when the start was over.
    pub fn allocations(&self) -> Allocations {
        let total = device::allocations();
        Allocations { total, after_ready: lock(&self.phases).after_ready(total) }
    }

    /// Pinned host memory that the device's driver did not give by now; `None` where none is asked for.
    pub fn pinned_refused(&self) -> Option<Refused> {
        self.device.pinned_refused()
    }

    /// What computes.
    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Whether the first run of a program does what later ones need not: its kernels are measured, its launches recorded.
    pub fn prepares_runs(&self) -> bool {
        self.device.prepares_runs()
    }

    /// Whether what the process holds of host memory counts against the ceiling: not where the device has memory of
    /// its own.
    pub fn counts_host_memory(&self) -> bool {
        self.device.own_free_bytes().is_none()
    }

    /// The account of host memory.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// The lanes; `None` for an arena of the heap.
    pub fn lanes(&self) -> Option<&Pool<Workspace>> {
        match &self.backing {
            Backing::Heap => None,
            Backing::Slab { lanes, .. } => Some(lanes),
        }
    }

    /// The largest workspace that any lane has, in bytes; `None` where nothing limits it.
    pub fn largest_workspace(&self) -> Option<u64> {
        self.lanes().map(|lanes| lanes.largest_bytes(crate::lane::Want::BurstToo))
    }

    /// Who is to be asked when idle models have to leave for others.
    pub fn set_evict(&self, evict: Evict) {
        *lock(&self.evict) = Some(evict);
    }

    /// How an owner is treated as long as the agreement lives; an arena of the heap treats all alike.
    pub(crate) fn agree(&self, owner: &str, terms: Terms) -> Option<Agreement> {
        match &self.backing {
            Backing::Heap => None,
            Backing::Slab { slab, .. } => Some(slab.agree(owner, terms, self.held_by(owner))),
        }
    }

    /// The slab's regions and extents now; `None` for an arena of the heap.
    pub fn snapshot(&self) -> Option<(Snapshot, Counters)> {
        let Backing::Slab { slab, lanes, .. } = &self.backing else { return None };
        let counters = lanes.counters();
        Some((slab.snapshot(counters.steady.bytes, counters.burst.bytes), counters))
    }

    /// Bytes that an owner holds, of the slab and of host memory.
    pub fn held_by(&self, owner: &str) -> u64 {
        let host = self.ledger.held_bytes(owner);
        match &self.backing {
            Backing::Heap => host,
            Backing::Slab { slab, .. } => slab.held_bytes(owner) + host,
        }
    }

    /// What happened to the memory lately, oldest first.
    pub fn events(&self) -> Vec<Event> {
        match &self.backing {
            Backing::Heap => vec![],
            Backing::Slab { slab, .. } => slab.events(),
        }
    }

    /// Enters an event.
    pub fn record(&self, what: What, owner: &str, bytes: u64) {
        if let Backing::Slab { slab, .. } = &self.backing {
            slab.record(what, owner, bytes, (self.now_ms)());
        }
    }

    /// A count that goes up with every run.
    pub(crate) fn tick(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Enters host memory in the ledger.
    ///
    /// # Errors
    /// The headroom or the owner's cap leaves less.
    pub(crate) fn reserve(&self, owner: &str, kind: Kind, bytes: u64) -> Result<Reservation, DoesNotFit> {
        self.grant(owner, bytes, || self.ledger.reserve(owner, kind, bytes))
    }

    /// Has `take` take `bytes` for an owner whose terms allow that.
    fn grant<T>(
        &self,
        owner: &str,
        bytes: u64,
        take: impl FnOnce() -> Result<T, DoesNotFit>,
    ) -> Result<T, DoesNotFit> {
        let Backing::Slab { slab, .. } = &self.backing else { return take() };
        let Some(cap_bytes) = slab.terms(owner).cap_bytes else { return take() };
        // Two at once would each count on the bytes that the other takes.
        let _one = lock(&self.granting);
        let own = self.held_by(owner).saturating_sub(slab.before_bytes(owner));
        let free = cap_bytes.saturating_sub(own);
        if bytes <= free {
            return take();
        }
        let remedy = Remedy::Setting { setting: "memory_limit", bytes: own.saturating_add(bytes) };
        Err(DoesNotFit {
            owner: owner.into(),
            needed: bytes,
            free,
            ceiling: self.ledger.ceiling(),
            holders: vec![],
            bound: Bound::Cap { cap_bytes },
            remedies: vec![remedy],
        })
    }

    /// Room for a moment, where there is some that nobody has to leave for.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn spare_room(&self, owner: &str, bytes: u64) -> Result<Room, Error> {
        match &self.backing {
            Backing::Slab { slab, memory, .. } => {
                Ok(Room::in_slab(slab.reserve(owner, bytes)?, Arc::clone(memory)))
            }
            Backing::Heap => self.room(owner, bytes),
        }
    }

    /// Room for weights. Idle weights are moved together, and idle models asked to leave, where that helps.
    ///
    /// # Errors
    /// There is no room and none can be made.
    pub(crate) fn room(&self, owner: &str, bytes: u64) -> Result<Room, Error> {
        let Backing::Slab { slab, memory, .. } = &self.backing else {
            let own = self.device.memory(bytes).map_err(|_| Error::Memory { bytes: bytes as usize })?;
            return Ok(Room::own(own, bytes));
        };
        // Others may take what was made free: then room is made again, a few times.
        const ATTEMPTS: usize = 8;
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            let whole = bytes.next_multiple_of(self.device.alignment());
            match self.grant(owner, whole, || slab.reserve(owner, bytes)) {
                Ok(holding) => return Ok(Room::in_slab(holding, Arc::clone(memory))),
                // What others hold is not in the way.
                Err(refusal @ DoesNotFit { bound: Bound::Cap { .. }, .. }) => {
                    refused = Some(refusal);
                    break;
                }
                Err(refusal) => {
                    if !self.make_room(slab, &**memory, owner, bytes)? {
                        refused = Some(refusal);
                        break;
                    }
                    refused = Some(refusal);
                }
            }
        }
        self.record(What::Refuse, owner, bytes);
        Err(refused.map_or(Error::Memory { bytes: bytes as usize }, Error::DoesNotFit))
    }

    /// Moves and evicts; `false` where that is of no use.
    fn make_room(
        &self,
        slab: &Arc<Slab>,
        memory: &dyn Memory,
        owner: &str,
        bytes: u64,
    ) -> Result<bool, DoesNotFit> {
        let evict = lock(&self.evict);
        let priority = slab.terms(owner).priority;
        let (owners, moves) = match slab.plan_fit(owner, bytes, priority) {
            Fit::Free => return Ok(true),
            Fit::AfterMoves(moves) => (vec![], moves),
            Fit::AfterEvicting { owners, moves } if evict.is_some() => (owners, moves),
            Fit::AfterEvicting { .. } => return Ok(false),
            Fit::Never(refusal) => {
                self.record(What::Refuse, owner, bytes);
                return Err(refusal);
            }
        };
        for owner in &owners {
            let held = slab.held_bytes(owner);
            if !evict.as_ref().is_some_and(|evict| evict(owner)) {
                return Ok(false);
            }
            self.record(What::Evict, owner, held);
        }
        Ok(moves.into_iter().all(|step| self.move_weights(slab, memory, step)) || !owners.is_empty())
    }

    fn move_weights(&self, slab: &Arc<Slab>, memory: &dyn Memory, step: Move) -> bool {
        let Ok(moving) = slab.start_move(step) else { return false };
        memory.carry(moving);
        self.record(What::Move, "", step.from.bytes);
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole between statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
