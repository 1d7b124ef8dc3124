import { Alert, Anchor, Badge, Button, Code, Grid, Group, Skeleton, Stack, Text } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconAlertTriangle, IconChevronLeft, IconPlugConnected } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Logo } from '../../ui/Logo.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { sentence } from '../../ui/words.ts';
import { ConnectDialog } from '../connections/ConnectDialog.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { CredentialsCard } from './CredentialsCard.tsx';
import { DeleteIntegration } from './DeleteIntegration.tsx';
import { GoogleGuide } from './GoogleGuide.tsx';
import { integrationQuery, isGoogle, providerQuery } from './queries.ts';
import { SunsetNotice } from './SunsetNotice.tsx';
import { UsageCard } from './UsageCard.tsx';

export function IntegrationPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const { key } = useParams({ from: '/$environment/integrations/of/$key' });
  const [isOpen, { open, close }] = useDisclosure();
  const query = useQuery(integrationQuery(environment, key));
  const provider = useQuery({
    ...providerQuery(environment, query.data?.provider ?? ''),
    enabled: query.data !== undefined,
  });
  const { data: integration } = query;
  const hasGuide = integration !== undefined && isGoogle(integration.provider);
  return (
    <Page
      title={integration?.display_name ?? key}
      before={
        <Anchor
          size="sm"
          c="dimmed"
          renderRoot={(props) => <Link to="/$environment/integrations" params={{ environment }} {...props} />}
        >
          <Group gap={4} mb={6}>
            <IconChevronLeft size={14} /> Integrations
          </Group>
        </Anchor>
      }
      about={
        integration ? (
          <Group gap="xs" mt={4}>
            <Logo src={integration.logo} name={integration.display_name} size={24} />
            <Badge color="gray">{integration.unique_key}</Badge>
            {integration.test && <Badge color="violet">test credentials</Badge>}
          </Group>
        ) : (
          query.isPending && <Skeleton h={22} w={220} mt={6} />
        )
      }
      actions={
        mayWrite &&
        integration && (
          <Button leftSection={<IconPlugConnected size={16} />} onClick={open}>
            Add a test connection
          </Button>
        )
      }
    >
      <Loaded query={query} loading={<LoadingRows rows={2} height={260} />}>
        {(loaded) => (
          <Stack gap="lg">
            {loaded.fault && (
              <Alert
                color="red"
                icon={<IconAlertTriangle size={18} />}
                title={
                  <>
                    {sentence(loaded.fault.cause)}
                    <Text span size="sm" c="dimmed" fw={400}>
                      {' '}
                      since <RelativeTime at={loaded.fault.since} />
                    </Text>
                  </>
                }
              >
                <Text size="sm">{loaded.fault.next_step}</Text>
                <Text size="sm" c="dimmed" mt={4} component="div">
                  {Object.entries(loaded.fault.evidence).map(([name, value]) => (
                    <Code key={name} mr={6} className="wrap">
                      {name}: {String(value)}
                    </Code>
                  ))}
                </Text>
              </Alert>
            )}
            {loaded.usage && (
              <SunsetNotice environment={environment} integration={key} sunsets={loaded.usage.sunsets} />
            )}
            {provider.isPending && <LoadingRows rows={2} height={180} />}
            {provider.isError && <FaultNotice error={provider.error} />}
            <Grid gap="lg">
              <Grid.Col span={{ base: 12, lg: hasGuide ? 6 : 12 }}>
                <Stack gap="lg">
                  {provider.data && (
                    <CredentialsCard
                      key={loaded.updated_at}
                      environment={environment}
                      integration={loaded}
                      provider={provider.data}
                      mayWrite={mayWrite}
                    />
                  )}
                  {loaded.usage && (
                    <UsageCard environment={environment} integration={key} usage={loaded.usage} />
                  )}
                </Stack>
              </Grid.Col>
              {hasGuide && provider.data && (
                <Grid.Col span={{ base: 12, lg: 6 }}>
                  <GoogleGuide provider={provider.data} />
                </Grid.Col>
              )}
            </Grid>
            {mayWrite && (
              <DeleteIntegration
                environment={environment}
                integration={key}
                connections={loaded.usage?.connections.total ?? 0}
              />
            )}
          </Stack>
        )}
      </Loaded>
      <ConnectDialog environment={environment} integration={key} isOpen={isOpen} onClose={close} />
    </Page>
  );
}
