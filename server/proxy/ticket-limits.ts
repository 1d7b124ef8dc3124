/** What a ticket asks of a call beyond its rules. Pure. */
import type { Brand } from '../brand.ts';
import { AppError } from '../errors.ts';
import type { TicketRights } from '../http/caller.ts';
import type { Call } from './call.ts';

/** Throws `proxy_rule_denied` (403) where the call is for another connection or for an address of its own choice. */
export function requireTicketed(ticket: TicketRights, call: Call): void {
  if (call.integrationKey !== ticket.integrationKey || call.connectionId !== ticket.connectionId)
    throw denied('it is for another connection');
  // The paths are meant at the address of the provider.
  if (call.override) throw denied('it takes no Base-Url-Override');
}

/** As `requireTicketed`, once the connection is known: a connection that was recreated under the same ID is another. */
export function requireSameConnection(
  ticket: TicketRights,
  connection: { id: number; createdAt: Date },
): void {
  if (connection.id !== ticket.connectionRow || connection.createdAt.getTime() !== ticket.connectionMadeAt)
    throw denied('its connection was deleted');
}

function denied(reason: string): AppError {
  return new AppError('proxy_rule_denied', `The ticket refuses this call: ${reason}.`, {
    payload: { of: 'ticket' },
  });
}

/** The body of a call has more bytes than its ticket allows. */
export function requestBeyond(): AppError {
  return new AppError('ticket_bytes_exceeded');
}

/** The answer has more; the provider has done what was asked all the same. */
export function answerBeyond(): AppError {
  return new AppError(
    'ticket_bytes_exceeded',
    'The provider answered with more bytes than the ticket allows. What the call does is done.',
    { status: 502 },
  );
}

/**
 * They would act on all that is served at our address, the dashboard included: on what the browser keeps for it, which
 * keys and hints it sends there, or whom it tells what happens there (https://www.w3.org/TR/network-error-logging/,
 * https://www.w3.org/TR/reporting-1/).
 */
const actsOnOrigin = new Set([
  'accept-ch', 'activate-storage-access', 'clear-site-data', 'critical-ch', 'expect-ct', 'nel', 'origin-agent-cluster',
  'public-key-pins', 'public-key-pins-report-only', 'refresh', 'report-to', 'reporting-endpoints',
  'service-worker-allowed', 'set-cookie', 'set-cookie2', 'set-login', 'shared-storage-write', 'speculation-rules',
  'strict-transport-security', 'use-as-dictionary',
]); // biome-ignore format: a list reads better in lines
/** Families of them: attribution and auctions of advertisements, and sessions bound to a device. */
const familiesOnOrigin =
  /^(?:attribution-reporting-.*|ad-auction-.*|.*-session-registration|.*-session-challenge)$/;

/** The headers of a provider's answer to a ticket: nothing of it can act on our address, or run there. */
export function shieldedHeaders(headers: readonly string[]): string[] {
  const kept: string[] = [];
  for (let at = 0; at + 1 < headers.length; at += 2) {
    const name = headers[at] as string;
    const read = name.toLowerCase();
    if (!actsOnOrigin.has(read) && !familiesOnOrigin.test(read)) kept.push(name, headers[at + 1] as string);
  }
  kept.push('content-security-policy', 'sandbox');
  return kept;
}

/**
 * As `shieldedHeaders`, for a page of ours. A redirect is told as X-<Brand>-Location: the browser would follow a Location to
 * our own address with the method, the body and the cookie of the call, and with all by which a page of ours is known.
 */
export function headersForPage(headers: readonly string[], brand: Brand): string[] {
  const shielded = shieldedHeaders(headers);
  return shielded.map((text, at) =>
    at % 2 === 0 && text.toLowerCase() === 'location' ? brand.header('Location').toLowerCase() : text,
  );
}
