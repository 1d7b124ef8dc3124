import { Anchor, Badge, Card, Code, Group, SimpleGrid, Stack, Text, Title } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { Fact, Facts } from '../../ui/Facts.tsx';
import { JsonBlock } from '../../ui/JsonBlock.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import type { WholeFunction } from './queries.ts';
import { SchemaTable } from './SchemaTable.tsx';
import { whenOf } from './words.ts';

/** What a function says of itself: when it runs, what it needs, what it takes and gives. */
export function DeclaredTab({
  found,
  environment,
  integration,
}: {
  found: WholeFunction;
  environment: string;
  integration: string;
}) {
  const { json_schema: schemas, input, returns = [], checkpoint_schema, metadata_schema } = found;
  const schemaOf = (name: string) => schemas?.definitions[name] ?? {};
  const isSync = found.type === 'sync';
  return (
    <Stack gap="lg">
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
        <Card>
          <Title order={2} mb="xs">
            About
          </Title>
          {found.description !== '' && (
            <Text size="sm" mb="sm" className="broken">
              {found.description}
            </Text>
          )}
          <Facts>
            <Fact name="Runs">{whenOf(found)}</Fact>
            {isSync && <Fact name="Starts">{found.auto_start ? 'by itself' : 'once it is started'}</Fact>}
            {isSync && (
              <Fact name="Deletes">{found.track_deletes ? 'tracked' : 'not tracked by itself'}</Fact>
            )}
            {found.type === 'action' && (
              <Fact name="Access">
                {found.read_only ? 'reads only' : 'may change things at the provider'}
              </Fact>
            )}
            <Fact name="Integration">
              <Anchor
                inherit
                renderRoot={(props) => (
                  <Link
                    to="/$environment/integrations/of/$key"
                    params={{ environment, key: integration }}
                    {...props}
                  />
                )}
              >
                {integration}
              </Anchor>
            </Fact>
            <Fact name="Deployed">
              <RelativeTime at={found.last_deployed} />
              {`, version ${found.version}`}
              {found.version_label !== '0.0.1' && ` (${found.version_label})`}
            </Fact>
            <Fact name="From">{found.source === 'folder' ? "the service's own folder" : 'a deploy'}</Fact>
          </Facts>
        </Card>
        <Card>
          <Title order={2} mb="xs">
            What it needs
          </Title>
          <Stack gap="sm">
            <div>
              <Text size="sm" c="dimmed" mb={4}>
                Scopes of the connection
              </Text>
              {found.scopes.length === 0 ? (
                <Text size="sm">It declares none.</Text>
              ) : (
                <Stack gap={4} align="flex-start">
                  {found.scopes.map((scope) => (
                    <Code key={scope} className="wrap">
                      {scope}
                    </Code>
                  ))}
                </Stack>
              )}
            </div>
            {(found.webhook_subscriptions ?? []).length > 0 && (
              <div>
                <Text size="sm" c="dimmed" mb={4}>
                  Webhooks that it is given
                </Text>
                <Group gap={6}>
                  {found.webhook_subscriptions?.map((type) => (
                    <Badge key={type} color="gray">
                      {type}
                    </Badge>
                  ))}
                </Group>
              </div>
            )}
            {metadata_schema !== null && (
              <div>
                <Text size="sm" c="dimmed" mb={4}>
                  Metadata of the connection
                </Text>
                <SchemaTable schema={metadata_schema} />
              </div>
            )}
            {checkpoint_schema !== null && (
              <div>
                <Text size="sm" c="dimmed" mb={4}>
                  Checkpoint that it keeps
                </Text>
                <SchemaTable schema={checkpoint_schema} />
              </div>
            )}
          </Stack>
        </Card>
      </SimpleGrid>
      {input !== undefined && (
        <Schema title="Input" what="the schema of the input" schema={schemaOf(input)} />
      )}
      {returns.map((name) => (
        <Schema
          key={name}
          title={isSync ? `Model ${name}` : 'Output'}
          what={isSync ? `the schema of ${name}` : 'the schema of the output'}
          schema={schemaOf(name)}
        />
      ))}
    </Stack>
  );
}

function Schema({ title, what, schema }: { title: string; what: string; schema: Record<string, unknown> }) {
  return (
    <Card component="section" aria-label={title}>
      <Title order={2} mb="xs">
        {title}
      </Title>
      <SchemaTable schema={schema} />
      <details className="unfold">
        <summary>As JSON Schema</summary>
        <JsonBlock value={schema} what={what} />
      </details>
    </Card>
  );
}
