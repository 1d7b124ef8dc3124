import { z } from 'zod';
import { AppError } from '../errors.ts';
import type { App } from './server.ts';

/** `/health`: the process answers. `/ready`: it can do its work; `check` throws where it cannot. */
export function healthRoutes(app: App, { check }: { check: () => Promise<void> }): void {
  const schema = { hide: true, response: { 200: z.object({ result: z.literal('ok') }) } };
  const access = { by: 'anyone' } as const;
  app.get('/health', { config: { access }, schema }, () => ({ result: 'ok' as const }));
  app.get('/ready', { config: { access }, schema }, async () => {
    await check().catch((cause: unknown) => {
      throw new AppError('unavailable', 'The database does not answer.', { cause });
    });
    return { result: 'ok' as const };
  });
}
