//! File form (to come).
