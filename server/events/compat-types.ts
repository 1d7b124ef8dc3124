import type { EventType } from './catalogue.ts';

/**
 * Which events go to the addresses that the official clients know (`webhook_url`, `webhook_url_secondary`, a
 * connection's `webhook_url_override`), and the switch of the environment's settings that lets them. Their bodies are
 * written in `deliveries/compat-body.ts`.
 */
export const compatTypes = {
  'connection.created': { switch: 'on_auth_creation' },
  // A new grant for a connection that is there already has no switch.
  'connection.reconnected': { switch: undefined },
  'connection.connect_failed': { switch: 'on_auth_creation' },
  'connection.needs_reauth': { switch: 'on_auth_refresh_error' },
  'connection.blocked': { switch: 'on_auth_refresh_error' },
  // Changes are told whatever the switch says.
  'sync.changed': { switch: undefined },
  'sync.unchanged': { switch: 'on_sync_completion_always' },
  'sync.failed': { switch: 'on_sync_error' },
  'action.succeeded': { switch: 'on_async_action_completion' },
  'action.failed': { switch: 'on_async_action_completion' },
  // The integration's `forward_webhooks` has said already whether it is told.
  'webhook.received': { switch: undefined },
} as const satisfies Partial<Record<EventType, { switch: EventSwitch | undefined }>>;

export type CompatType = keyof typeof compatTypes;

/** The switches of an environment, on unless they are switched off. */
export const eventSwitches = [
  'on_auth_creation',
  'on_auth_refresh_error',
  'on_sync_completion_always',
  'on_sync_error',
  'on_async_action_completion',
] as const;
export type EventSwitch = (typeof eventSwitches)[number];
