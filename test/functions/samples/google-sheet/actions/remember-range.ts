import { createAction } from 'nango';
import { z } from 'zod';

export default createAction({
  description: 'Keeps the range that the sync reads from now on.',
  input: z.object({ range: z.string().optional() }),
  output: z.void(),
  metadata: z.object({ range: z.string() }),
  exec: async (nango, input) => {
    if (!input.range) {
      const known = await nango.getMetadata();
      await nango.log('It stays', known, { level: 'debug' });
      return;
    }
    await nango.updateMetadata({ range: input.range });
  },
});
