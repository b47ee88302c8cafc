//! What a study leaves behind: tables and figures, one file a format.

pub mod plot;
