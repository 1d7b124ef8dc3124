import { gzip } from 'node:zlib';
import type { FastifyInstance, onSendHookHandler } from 'fastify';

/** Smaller responses fit in one packet. */
const minLength = 1_400;

/**
 * Compresses responses to the dashboard, of routes that are added later: its lists are fetched again every few seconds, also
 * over slow connections. Responses to keys are not compressed, because applications usually read them from a host nearby.
 *
 * No other site can measure the length of these responses for texts that it chose (BREACH): a browser sends the header of
 * the dashboard for its own pages only.
 */
export function compressForUsers(app: FastifyInstance): void {
  app.addHook('onRoute', (route) => {
    const by = route.config?.access?.by;
    const hooks = [route.onSend ?? []].flat();
    // Fastify derives the HEAD route from the GET route, including its hooks.
    if ((by === 'key' || by === 'key or session' || by === 'person') && !hooks.includes(compress))
      route.onSend = [...hooks, compress];
  });
}

/** RFC 9110 §12.5.3, without `*`. A coding with the weight 0 is refused. */
export function acceptsCoding(header: string | string[] | undefined, coding: string): boolean {
  return [header ?? []]
    .flat()
    .join(',')
    .toLowerCase()
    .split(',')
    .some((part) => {
      const [name = '', ...parameters] = part.split(';').map((piece) => piece.trim());
      return name === coding && !parameters.some((one) => /^q\s*=\s*0(\.0*)?$/.test(one));
    });
}

const compress: onSendHookHandler = (request, reply, payload, done) => {
  const isFit =
    request.method === 'GET' &&
    request.caller?.kind === 'user' &&
    typeof payload === 'string' &&
    payload.length >= minLength &&
    !reply.hasHeader('content-encoding') &&
    acceptsCoding(request.headers['accept-encoding'], 'gzip');
  if (!isFit) return done(null, payload);
  gzip(payload, { level: 4 }, (error, compressed) => {
    if (error) return done(null, payload);
    reply.headers({ 'content-encoding': 'gzip', vary: 'accept-encoding' }).removeHeader('content-length');
    done(null, compressed);
  });
};
