//! Visits every state that a model can reach.

use std::fmt::{self, Debug};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A finite set of states, and the steps between them.
pub(crate) trait Model {
    type State: Hash;
    type Step: Debug;

    /// Returns the initial state.
    fn start(&self) -> Self::State;

    /// Returns every possible step from a state, with the next state or the violated property.
    fn steps(&self, state: &Self::State) -> Vec<Transition<Self>>;
}

/// A step and its result.
pub(crate) type Transition<M> = (<M as Model>::Step, Result<<M as Model>::State, Violation>);

/// The description of a violated property.
pub(crate) type Violation = String;

/// The size of an exploration.
#[derive(Debug)]
pub(crate) struct Exploration {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    pub(crate) depth: usize,
}

/// The steps that lead to a violation.
pub(crate) struct Counterexample {
    pub(crate) broken: Violation,
    steps: Vec<String>,
}

impl Debug for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, after:", self.broken)?;
        self.steps
            .iter()
            .try_for_each(|step| writeln!(f, "  {step}"))
    }
}

/// Returns a fingerprint unchanged, because it is a hash already.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are hashed")
    }
    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A set of fingerprints. Its random order has no effect, because it is never iterated.
#[allow(clippy::disallowed_types)]
type Visited = std::collections::HashSet<u64, BuildHasherDefault<IdentityHasher>>;

/// Folds its input into 64 bits by multiplication. It is much faster than the standard library's hasher, and no attacker
/// chooses the input.
#[derive(Default)]
struct FoldingHasher(u64);

impl FoldingHasher {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64 ^ word.rotate_left(32);
    }
}

impl Hasher for FoldingHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, number: u8) {
        self.fold(u64::from(number));
    }
    fn write_u32(&mut self, number: u32) {
        self.fold(u64::from(number));
    }
    fn write_u64(&mut self, number: u64) {
        self.fold(number);
    }
    fn write_usize(&mut self, number: usize) {
        self.fold(number as u64);
    }
    fn write_isize(&mut self, number: isize) {
        self.fold(number as u64);
    }
    fn finish(&self) -> u64 {
        let mut last = Self(self.0);
        last.fold(0x2545_f491_4f6c_dd1d);
        last.0
    }
}

fn fingerprint(state: &impl Hash) -> u64 {
    let mut hasher = FoldingHasher(0x1234_5678_9abc_def0);
    state.hash(&mut hasher);
    hasher.finish()
}

/// Visits every reachable state, depth first, until a property is violated. The model must be finite.
pub(crate) fn explore<M: Model>(model: &M) -> Result<Exploration, Counterexample> {
    let start = model.start();
    let mut visited = Visited::default();
    visited.insert(fingerprint(&start));
    let mut explored = Exploration {
        states: 1,
        steps: 0,
        depth: 0,
    };
    // The untried steps of each level. `path[n]` led to level n + 1.
    let mut levels = vec![model.steps(&start)];
    let mut path: Vec<M::Step> = Vec::new();
    while let Some(level) = levels.last_mut() {
        let Some((step, outcome)) = level.pop() else {
            levels.pop();
            path.pop();
            continue;
        };
        explored.steps += 1;
        match outcome {
            Err(broken) => {
                path.push(step);
                let steps = path.iter().map(|step| format!("{step:?}")).collect();
                return Err(Counterexample { broken, steps });
            }
            Ok(state) if visited.insert(fingerprint(&state)) => {
                explored.states += 1;
                path.push(step);
                levels.push(model.steps(&state));
                explored.depth = explored.depth.max(path.len());
            }
            Ok(_) => {}
        }
    }
    Ok(explored)
}
