//! The service through real HTTP.

mod access;
mod claims;
mod collector;
mod common;
mod dashboard;
mod events;
mod faults;
mod gates;
mod glock;
mod guard;
mod guarded;
mod input;
mod items;
mod log;
mod lost;
mod metrics;
mod names;
mod openapi;
mod remote;
mod routes;
mod several;
mod subscriber;
mod tls;
mod traces;
mod waiting;
