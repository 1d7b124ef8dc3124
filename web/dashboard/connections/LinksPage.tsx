import { Badge, Button, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { Confirm } from '../../ui/Confirm.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { IconPlugConnected } from '../../ui/icons.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { sentence } from '../../ui/words.ts';
import { AnchorLink, BackLink, connectionPage, GuideLink } from '../links.tsx';
import { CursorPager, defined } from '../lists.tsx';
import { useActors } from '../settings/actors.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { useChange } from '../use-change.ts';
import { endUserText } from './EndUser.tsx';
import { type ConnectLink, connectLinksQuery, revokeLink } from './queries.ts';

const colors: Record<ConnectLink['state'], string> = { open: 'trellis', used: 'teal', expired: 'gray' };

/** The connect links of an environment, newest first. */
export function LinksPage() {
  const environment = useEnvironment();
  const { before } = useSearch({ from: '/$environment/connections/links' });
  const navigate = useNavigate({ from: '/$environment/connections/links' });
  const links = useQuery(connectLinksQuery(environment, { limit: 50, ...defined({ before }) }));
  return (
    <Page
      title="Connect links"
      about={
        <>
          Each link lets one end user connect one account, for 30 minutes. The link itself is only shown to
          its creator. <GuideLink to="connect-page" />
        </>
      }
      before={
        <BackLink to="/$environment/connections" params={{ environment }} search={{}}>
          Connections
        </BackLink>
      }
    >
      <Loaded query={links}>
        {({ data, next_before: next }) =>
          data.length === 0 && before === undefined ? (
            <EmptyState icon={<IconPlugConnected size={26} />} title="No connect links">
              Your application creates them with <code>POST /connect/sessions</code>. A link is listed until
              30 minutes after it expires.
            </EmptyState>
          ) : (
            <Stack>
              <LinksTable links={data} />
              <CursorPager
                onFirst={
                  before === undefined ? undefined : () => void navigate({ search: {}, replace: true })
                }
                next={next === null ? undefined : { before: Number(next) }}
              />
            </Stack>
          )
        }
      </Loaded>
    </Page>
  );
}

function LinksTable({ links }: { links: ConnectLink[] }) {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const { nameOf } = useActors();
  const [revoked, setRevoked] = useState<ConnectLink>();
  const revoke = useChange((link: ConnectLink) => revokeLink(environment, link.id), {
    stale: [[environment, 'connect links']],
    done: 'The link is revoked.',
  });
  return (
    <>
      <ListTable
        rows={links}
        keyOf={({ id }) => id}
        columns={[
          {
            title: 'State',
            cell: ({ state, failure }) => (
              <>
                <Badge color={colors[state]}>{sentence(state)}</Badge>
                {failure !== null && (
                  <Text size="xs" c="var(--mantine-color-error)">
                    {sentence(failure)}
                  </Text>
                )}
              </>
            ),
          },
          {
            title: 'End user',
            className: 'wrap',
            cell: ({ end_user: endUser }) => (endUser === null ? 'none' : endUserText(endUser)),
          },
          {
            title: 'Integration',
            visibleFrom: 'sm',
            className: 'wrap',
            cell: ({ connection, reconnects, allowed_integrations: allowed }) => {
              const at = connection ?? reconnects;
              if (at === null) return allowed === null ? 'all' : allowed.join(', ');
              const { integration_id: integration, connection_id: id } = at;
              return (
                <>
                  {integration}{' '}
                  <AnchorLink size="xs" {...connectionPage(environment, { integration, id })}>
                    {connection === null ? 'renews a connection' : 'View connection'}
                  </AnchorLink>
                </>
              );
            },
          },
          {
            title: 'Created by',
            visibleFrom: 'md',
            className: 'wrap',
            cell: ({ created_by: by }) => (by === null ? '' : (nameOf(by) ?? by)),
          },
          {
            title: 'Created',
            visibleFrom: 'md',
            cell: ({ created_at: at }) => <RelativeTime at={at} size="sm" />,
          },
          {
            title: 'Expires',
            visibleFrom: 'xs',
            cell: ({ expires_at: at }) => <RelativeTime at={at} size="sm" />,
          },
          mayWrite && {
            label: 'Actions',
            w: 1,
            cell: (link) =>
              link.state === 'open' && (
                <Button size="compact-sm" variant="default" onClick={() => setRevoked(link)}>
                  Revoke
                </Button>
              ),
          },
        ]}
      />
      <Confirm
        title="Revoke the link?"
        act="Revoke"
        given={revoked}
        mutation={revoke}
        onClose={() => setRevoked(undefined)}
      >
        <Text size="sm">The link is rejected from now on. The end user needs a new link to connect.</Text>
      </Confirm>
    </>
  );
}
