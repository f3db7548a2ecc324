//! The binary as its users have it: real processes, real files, real signals.

mod commands;
mod doctor;
mod exclusion;
mod input;
mod run;
mod service;
mod support;
mod terminal;
mod watchdog;
