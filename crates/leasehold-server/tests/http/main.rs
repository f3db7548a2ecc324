//! The service through real HTTP.

mod common;
mod faults;
mod glock;
mod input;
mod log;
mod names;
mod remote;
mod routes;
mod waiting;
