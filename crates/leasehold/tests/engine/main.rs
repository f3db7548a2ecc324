//! The guarantees of the engine beyond those of the core: batching, order, limits, and lost answers.

mod abandoned;
mod acquire_all;
mod answers;
mod batching;
mod clock_steps;
mod closing;
mod events;
mod faults;
mod fences;
mod limits;
mod nonces;
mod order;
mod panics;
mod probe;
mod puts;
mod repeated;
mod support;
mod wait_queue;
