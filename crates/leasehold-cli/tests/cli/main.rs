//! The binary as its users have it: real processes, real files, real signals.

mod also;
mod audit_log;
mod bench;
mod commands;
mod config;
mod doctor;
mod escapes;
mod exclusion;
mod gate;
mod input;
mod items;
mod notify;
mod other_user;
mod pkill;
mod purge;
mod readme;
mod run;
mod service;
mod support;
mod terminal;
mod token;
mod traces;
mod traps;
mod watch;
mod watchdog;
mod work;
