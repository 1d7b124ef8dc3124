import { Tabs } from '@mantine/core';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { Page } from '../../ui/Page.tsx';
import { TabRow } from '../../ui/TabRow.tsx';
import type { EventsSearch } from '../search.ts';
import { AddressesTab } from './AddressesTab.tsx';
import { DeliveriesTab } from './DeliveriesTab.tsx';
import { EndpointsTab } from './EndpointsTab.tsx';
import { FeedTab } from './FeedTab.tsx';
import { SigningTab } from './SigningTab.tsx';

const tabs = {
  endpoints: { label: 'Endpoints', Content: EndpointsTab },
  deliveries: { label: 'Deliveries', Content: DeliveriesTab },
  feed: { label: 'Feed', Content: FeedTab },
  signing: { label: 'Signing key', Content: SigningTab },
  addresses: { label: 'Addresses', Content: AddressesTab },
} as const;

export function EventsPage() {
  const { tab = 'endpoints' } = useSearch({ from: '/$environment/events' });
  const navigate = useNavigate({ from: '/$environment/events' });
  return (
    <Page
      title="Events"
      about="What happens to connections, integrations and records: followed as a feed, or sent to you, signed."
    >
      <Tabs
        value={tab}
        keepMounted={false}
        onChange={(next) =>
          void navigate({ search: next === 'endpoints' ? {} : { tab: next as EventsSearch['tab'] } })
        }
      >
        <TabRow open={tab}>
          {Object.entries(tabs).map(([name, { label }]) => (
            <Tabs.Tab key={name} value={name}>
              {label}
            </Tabs.Tab>
          ))}
        </TabRow>
        {Object.entries(tabs).map(([name, { Content }]) => (
          <Tabs.Panel key={name} value={name}>
            <Content />
          </Tabs.Panel>
        ))}
      </Tabs>
    </Page>
  );
}
