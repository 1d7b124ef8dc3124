import { ActionIcon, Anchor, Badge, Button, Card, Group, Menu, Stack, Text } from '@mantine/core';
import { IconDots, IconPencil, IconPower, IconRepeat, IconSend, IconTrash } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { Copyable } from '../../ui/Copyable.tsx';
import { Fact, Facts } from '../../ui/Facts.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { useEnvironment } from '../shell/environment.ts';
import type { Endpoint } from './queries.ts';
import { failureOf, kindOf, stateOf } from './words.ts';

type EndpointActs = {
  onEdit: () => void;
  onReplay: () => void;
  onDelete: () => void;
  onTest: () => void;
  onTurn: () => void;
};

/** One endpoint: where it is, how it is, and what can be done about that. Without `acts` it is only looked at. */
export function EndpointCard({ endpoint, acts }: { endpoint: Endpoint; acts: EndpointActs | undefined }) {
  const environment = useEnvironment();
  const state = stateOf(endpoint);
  const kind = kindOf(endpoint.kind);
  const { waiting, last_failure: failure, breaker } = endpoint;
  return (
    <Card component="article" aria-label={endpoint.url}>
      <Stack gap="xs">
        <Group justify="space-between" wrap="nowrap">
          <Group gap="xs" miw={0}>
            <Badge color={state.color} variant="dot">
              {state.word}
            </Badge>
            {kind !== undefined && <Badge color="gray">{kind}</Badge>}
          </Group>
          {acts !== undefined && <Acts endpoint={endpoint} acts={acts} />}
        </Group>
        <Copyable value={endpoint.url} what="the address" />
        {endpoint.description !== '' && (
          <Text size="sm" className="wrap">
            {endpoint.description}
          </Text>
        )}
        {state.why !== undefined && (
          <Text size="sm" c="dimmed">
            {state.why}
            {breaker.state === 'open' && breaker.open_until !== null && (
              <>
                {' '}
                Next probe <RelativeTime at={breaker.open_until} />.
              </>
            )}
          </Text>
        )}
        <Facts>
          <Fact name="Events">
            {kind !== undefined
              ? 'as the switches of the settings say'
              : endpoint.types.length === 0
                ? 'all'
                : endpoint.types.join(', ')}
          </Fact>
          <Fact name="Last taken">
            <RelativeTime at={endpoint.last_success_at} />
          </Fact>
          {failure !== null && (
            <Fact name="Last failure">
              <RelativeTime at={failure.at} />. {failureOf(failure)}
            </Fact>
          )}
          <Fact name="Waiting">
            {waiting.count === 0 ? (
              'nothing'
            ) : (
              <>
                {waiting.is_more ? `more than ${waiting.count - 1}` : waiting.count.toLocaleString()}
                {waiting.since !== null && (
                  <>
                    , the oldest from <RelativeTime at={waiting.since} />
                  </>
                )}
              </>
            )}
          </Fact>
        </Facts>
        <Group gap="sm">
          <Anchor
            size="sm"
            renderRoot={(props) => (
              <Link
                to="/$environment/events"
                params={{ environment }}
                search={{ tab: 'deliveries', endpoint: endpoint.id }}
                {...props}
              />
            )}
          >
            Its deliveries
          </Anchor>
          {acts !== undefined && !endpoint.enabled && (
            <Button size="compact-sm" variant="light" onClick={acts.onTurn}>
              Switch on again
            </Button>
          )}
        </Group>
      </Stack>
    </Card>
  );
}

function Acts({ endpoint, acts }: { endpoint: Endpoint; acts: EndpointActs }) {
  const isOwn = endpoint.kind === 'events';
  return (
    <Menu position="bottom-end" width={210}>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" aria-label={`Acts on ${endpoint.url}`}>
          <IconDots size={18} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {isOwn && (
          <Menu.Item leftSection={<IconPencil size={16} />} onClick={acts.onEdit}>
            Edit
          </Menu.Item>
        )}
        <Menu.Item leftSection={<IconSend size={16} />} onClick={acts.onTest} disabled={!endpoint.enabled}>
          Send the latest event
        </Menu.Item>
        <Menu.Item leftSection={<IconRepeat size={16} />} onClick={acts.onReplay}>
          Replay a range
        </Menu.Item>
        <Menu.Item leftSection={<IconPower size={16} />} onClick={acts.onTurn}>
          {endpoint.enabled ? 'Switch off' : 'Switch on again'}
        </Menu.Item>
        {isOwn && (
          <>
            <Menu.Divider />
            <Menu.Item color="red" leftSection={<IconTrash size={16} />} onClick={acts.onDelete}>
              Delete
            </Menu.Item>
          </>
        )}
      </Menu.Dropdown>
    </Menu>
  );
}
