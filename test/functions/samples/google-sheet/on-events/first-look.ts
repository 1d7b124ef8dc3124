import { createOnEvent } from 'nango';
import { z } from 'zod';

export default createOnEvent({
  description: 'Notes who connected.',
  version: '1.0.0',
  event: 'post-connection-creation',
  metadata: z.object({ connectedBy: z.string() }),
  exec: async (nango) => {
    const connection = await nango.getConnection();
    await nango.setMetadata({ connectedBy: String(connection.end_user?.id ?? 'unknown') });
  },
});
