-- Work that one process leaves to another names the span that asked for it.
-- runs with: 0033

-- As the header `traceparent` does (W3C Trace Context). Null: nobody asked, or nothing is traced.
alter table run add column traceparent text;
alter table errand add column traceparent text;
