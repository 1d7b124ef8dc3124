import { Alert, Anchor, Stack, Text } from '@mantine/core';
import { IconCalendarExclamation } from '../../ui/icons.tsx';
import { useNow } from '../../ui/time.ts';
import { AnchorLink } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import type { Usage } from './queries.ts';

const dayMs = 86_400_000;

type Sunset = Usage['sunsets'][number];

/** The announced changes of the provider, and the affected connections. */
export function SunsetNotice({ integration, sunsets }: { integration: string; sunsets: Sunset[] }) {
  const environment = useEnvironment();
  const nowMs = useNow();
  return sunsets.map((sunset) => (
    <Alert
      key={`${sunset.on} ${sunset.ends}`}
      color="orange"
      icon={<IconCalendarExclamation size={18} />}
      title={concerning(sunset, nowMs)}
    >
      <Stack gap={6}>
        <Text size="sm">{sunset.ends}</Text>
        <Text size="sm">
          <Anchor inherit href={sunset.announcement} target="_blank" rel="noreferrer">
            The provider's announcement
          </Anchor>
          {' · '}
          <AnchorLink
            inherit
            to="/$environment/connections"
            params={{ environment }}
            search={{ integration }}
          >
            All connections of this integration
          </AnchorLink>
        </Text>
      </Stack>
    </Alert>
  ));
}

/** `2 connections may stop working on 1 January 2027`. The date is the provider's, the same in every time zone. */
export function concerning({ connections, on }: Sunset, nowMs: number): string {
  const count = connections === 1 ? '1 connection' : `${connections.toLocaleString()} connections`;
  const date = new Date(on).toLocaleDateString('en-GB', { dateStyle: 'long', timeZone: 'UTC' });
  const isPast = Date.parse(on) + dayMs <= nowMs;
  return `${count} may ${isPast ? 'have stopped working since' : 'stop working on'} ${date}`;
}
