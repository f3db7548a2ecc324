//! Leasehold as an HTTP service.
