// Delete tracking with checkpoints, with the 500 interleavings that are too many for every run.
process.env.LONG = '1';
await import('../../server/functions/context/tracked-checkpoints.test.ts');
