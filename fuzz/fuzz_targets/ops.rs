#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    redis_rq_fuzz::targets::ops(data);
});
