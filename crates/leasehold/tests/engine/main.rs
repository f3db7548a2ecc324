//! What the engine promises beyond the core: combining, order, bounds, and honesty about lost answers.

mod answers;
mod bounds;
mod clock_steps;
mod closing;
mod company;
mod faults;
mod fences;
mod gone;
mod line;
mod nonces;
mod order;
mod panics;
mod probe;
mod puts;
mod repeated;
mod several;
mod support;
mod watch;
