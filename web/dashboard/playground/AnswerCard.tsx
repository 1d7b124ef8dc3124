import { Alert, Anchor, Badge, Card, Group, Stack, Table, Tabs, Text, Title } from '@mantine/core';
import { IconAlertTriangle } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { duration } from '../activity/OperationsTable.tsx';
import { AnswerBody } from './AnswerBody.tsx';
import { type Advice, adviceOn } from './advice.ts';
import { sizeOf } from './answer.ts';
import type { ProxiedAnswer } from './queries.ts';
import { Timing } from './Timing.tsx';

/** What came back, by whom, how fast, and what to do where it is an error. */
export function AnswerCard({ answer }: { answer: ProxiedAnswer }) {
  const { status, headers, bytes, totalMs } = answer;
  const advice = adviceOn(answer);
  return (
    <Card component="section" aria-label="Answer">
      <Stack gap="md">
        <Group gap="xs">
          <Title order={2}>Answer</Title>
          <Badge color={status < 300 ? 'green' : status < 400 ? 'yellow' : 'red'} size="lg">
            {status}
          </Badge>
          <Text size="sm" c="dimmed">
            {duration(totalMs)} · {sizeOf(bytes.size)}
          </Text>
        </Group>
        {advice !== undefined && <AdviceNotice advice={advice} answer={answer} />}
        <Tabs defaultValue="body" keepMounted={false}>
          <Tabs.List>
            <Tabs.Tab value="body">Body</Tabs.Tab>
            <Tabs.Tab value="headers">Headers ({headers.length})</Tabs.Tab>
            <Tabs.Tab value="timing">Timing</Tabs.Tab>
          </Tabs.List>
          <Tabs.Panel value="body" pt="md">
            <AnswerBody answer={answer} />
          </Tabs.Panel>
          <Tabs.Panel value="headers" pt="md">
            <Table layout="fixed">
              <Table.Tbody>
                {headers.map(([name, value]) => (
                  <Table.Tr key={name}>
                    <Table.Th w="40%" fw={400} c="dimmed" className="wrap">
                      {name}
                    </Table.Th>
                    <Table.Td ff="monospace" fz="xs" className="wrap">
                      {value}
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Tabs.Panel>
          <Tabs.Panel value="timing" pt="md">
            <Timing answer={answer} />
          </Tabs.Panel>
        </Tabs>
      </Stack>
    </Card>
  );
}

function AdviceNotice({ advice, answer }: { advice: Advice; answer: ProxiedAnswer }) {
  const { by, title, text, leadsTo } = advice;
  const { environment, integration, connection } = answer.caller;
  return (
    <Alert
      color={by === 'Trellis' ? 'red' : 'orange'}
      icon={<IconAlertTriangle size={18} />}
      title={title}
      role="alert"
    >
      <Stack gap={6} align="flex-start">
        <Text size="sm">{text}</Text>
        <Text size="sm">
          {by === 'Trellis' ? (
            <>
              This is an answer of Trellis, not of the provider: <code>{answer.ownError}</code>
            </>
          ) : (
            'This is the answer of the provider, unchanged.'
          )}
        </Text>
        {leadsTo === 'connection' && (
          <Anchor
            size="sm"
            c="inherit"
            underline="always"
            renderRoot={(props) => (
              <Link
                to="/$environment/connections/$integration/$id"
                params={{ environment, integration, id: connection }}
                {...props}
              />
            )}
          >
            To the connection
          </Anchor>
        )}
        {leadsTo === 'integration' && (
          <Anchor
            size="sm"
            c="inherit"
            underline="always"
            renderRoot={(props) => (
              <Link
                to="/$environment/integrations/of/$key"
                params={{ environment, key: integration }}
                {...props}
              />
            )}
          >
            To the integration
          </Anchor>
        )}
        {leadsTo === 'activity' && (
          <Anchor
            size="sm"
            c="inherit"
            underline="always"
            renderRoot={(props) => (
              <Link to="/$environment/activity" params={{ environment }} search={{ connection }} {...props} />
            )}
          >
            To the activity of the connection
          </Anchor>
        )}
      </Stack>
    </Alert>
  );
}
